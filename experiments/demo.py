"""Sweep encoders that keep a digit's parity and lose the digit; attack what they release.

make demo            # about a minute on two cores, no download; the same as `privjax demo`
"""

from privjax.cli.demo import demo

if __name__ == "__main__":
    demo()

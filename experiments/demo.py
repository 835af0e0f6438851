"""Train encoders that keep the parity of a digit and remove the digit, then attack them.

make demo            # about a minute on two cores, no download; the same as `privjax demo`
"""

from privjax.cli.demo import demo

if __name__ == "__main__":
    demo()

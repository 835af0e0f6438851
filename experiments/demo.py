"""Sweep encoders that keep a digit's parity and lose the digit; attack what they release.

    make demo            # about a minute on two cores, no download

Scikit-learn's handwritten digits: the service needs to know odd or even, and must not learn which digit.
Whoever knows the parity guesses one digit in five, so 0.2 is as private as a useful release can be.
"""

import time

import jax
from sklearn.ensemble import RandomForestClassifier

import privjax
from privjax import datasets

WEIGHTS = (0.0, 0.5, 1.0, 1.5, 4.0)


def attack(z_train, s_train, z_test, s_test):
    """Accuracy of a fresh random forest that learned the private label from released rows."""
    forest = RandomForestClassifier(250, random_state=0, n_jobs=-1).fit(z_train, s_train)
    return forest.score(z_test, s_test)


def main():
    """Print one line for each privacy weight."""
    data = datasets.load("digits", seed=0)
    train, test = data.part("train"), data.part("test")
    print(f"digits: {len(train.x)} training and {len(test.x)} test rows; utility parity, private digit\n")
    print("what is released               parity   digit (attacked)   p-value of independence")

    def line(name, utility, z_train, z_test):
        leak = attack(z_train, train.s, z_test, test.s)
        confidence = privjax.privacy_confidence(z_test, test.s, key=jax.random.key(0), num_permutations=999)
        print(f"{name:30s} {utility:6.3f} {leak:18.3f} {confidence.p_value:25.3f}", flush=True)

    forest = RandomForestClassifier(250, random_state=0, n_jobs=-1).fit(train.x, train.y)
    line("the data as they are", forest.score(test.x, test.y), train.x, test.x)
    # A hidden layer before the funnel: which digit it is cannot be projected away from raw pixels.
    networks = privjax.nn_networks(64, num_outputs=2, private_widths=(200, 20))
    start = time.perf_counter()
    curve = privjax.sweep(data, privacy_weights=WEIGHTS, networks=networks, batch_size=125)
    for member in curve.members:
        encoder = curve.encoder(member["point"])
        name = f"NN-MMD, weight {member['privacy_weight']:g}"
        line(name, member["utility"]["test"], encoder(train.x), encoder(test.x))
    print(f"\nswept and attacked in {time.perf_counter() - start:.0f} s")
    print("chance 0.100, the parity alone 0.200. An attack is a lower bound on what leaks.")


if __name__ == "__main__":
    main()

"""The scikit-learn front: the numbers of `fit`, the manners of scikit-learn."""

import copy
import io
import json
import pickle
import zipfile

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from privjax.estimator import PrivacyTransformer
from privjax.estimator.labels import encode, private_columns
from privjax.exporting import runner
from privjax.networks import nn_networks
from privjax.training import Schedule, fit, make_objective

N = 60
TINY = dict(n_components=3, public_widths=(4,), max_epochs=2)


pytestmark = pytest.mark.usefixtures("quick_to_compile")


@pytest.fixture(scope="module")
def frame():
    """Sixty rows: four columns, an activity that shows in the first, three users who show in the second."""
    random = np.random.default_rng(0)
    y, s = np.arange(N) % 2, np.arange(N) % 3
    x = random.normal(size=(N, 4)) * [1, 1, 100, 0.01] + np.stack([3 * y, 2 * s, 0 * y, 0 * y], 1)
    frame = pd.DataFrame(x, columns=["a", "b", "c", "d"])
    frame["activity"] = np.array(["run", "walk"])[y]
    frame["user"] = np.array(["ann", "bob", "cid"])[s]
    frame["age"] = 40 + 10 * s + random.normal(size=N)
    return frame


@pytest.fixture(scope="module")
def data(frame):
    return frame[["a", "b", "c", "d"]], frame["activity"], frame["user"]


@pytest.fixture(scope="module")
def fitted(data):
    x, y, s = data
    return PrivacyTransformer(**TINY).fit(x, y, sensitive_features=s)


def test_it_is_fit_with_scaled_rows_and_numbered_classes(data, fitted):
    x, y, s = data
    scaled = StandardScaler().fit_transform(x)
    result = fit(
        scaled,
        (y == "walk").to_numpy(),
        {"sensitive_features": s.map({"ann": 0, "bob": 1, "cid": 2}).to_numpy()},
        objective=make_objective("mmd")._replace(schedule=Schedule(max_epochs=2)),
        privacy_weight=4.0,
        networks=nn_networks(4, num_outputs=2, private_widths=(3,), public_widths=(4,)),
        seed=np.random.RandomState(0).randint(2**31 - 1),
    )
    np.testing.assert_allclose(fitted.transform(x), result.encoder(scaled), atol=1e-5)
    predicted = fitted.predict(x)
    assert (predicted == np.array(["run", "walk"])[result.predict(scaled)]).all()
    assert fitted.score(x, y) == pytest.approx(result.score(scaled, y == "walk"))
    assert fitted.n_iter_ == 2
    assert fitted.status_ == result.status == "finished"
    assert fitted.history_["losses"]["utility"] == result.history.losses.utility.tolist()
    assert list(fitted.history_["losses"]["privacy"]) == ["sensitive_features"]
    probabilities = fitted.predict_proba(x)
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    assert (fitted.classes_[probabilities.argmax(1)] == predicted).all()


def test_rows_are_released_alike_alone_and_among_many(data, fitted):
    x = data[0]
    many = pd.concat([x] * 100)  # more than a block
    np.testing.assert_allclose(fitted.transform(many)[-N:], fitted.transform(x), rtol=1e-12)
    np.testing.assert_allclose(fitted.transform(x[:1]), fitted.transform(x)[:1], rtol=1e-12)
    assert fitted.transform(x.astype(np.float32)).dtype == np.float32
    assert fitted.predict_proba(many).shape == (len(many), 2)


def test_the_same_random_state_gives_the_same_bits(data, fitted):
    x, y, s = data

    def release(state):
        return PrivacyTransformer(**TINY, random_state=state).fit_transform(x, y, sensitive_features=s)

    assert (release(0) == fitted.transform(x)).all()
    assert (release(1) != release(0)).any()
    assert (release(np.random.RandomState(7)) == release(np.random.RandomState(7))).all()
    assert (release(None) != release(None)).any()


@pytest.mark.parametrize(
    "as_type",
    [
        lambda codes: codes,
        lambda codes: codes.astype(float),
        lambda codes: (codes - 3).astype(np.int8).tolist(),
        lambda codes: np.array([b"a", b"b", b"c"])[codes],
        lambda codes: pd.Categorical(np.array(["a", "b", "c"])[codes]),
        lambda codes: pd.Series(np.array(["a", "b", "c"])[codes], dtype=object),
        lambda codes: pd.Series(codes, dtype="Int64", index=np.arange(N) + 100),
        lambda codes: pd.to_datetime(pd.Series(codes), unit="D"),
    ],
)
def test_classes_of_any_type_are_the_same_classes(data, fitted, as_type):
    x, y, s = data
    released = fitted.transform(x)
    private = as_type(s.map({"ann": 0, "bob": 1, "cid": 2}).to_numpy())
    label = as_type((y == "walk").to_numpy().astype(int))
    ours = PrivacyTransformer(**TINY).fit(x, label, sensitive_features=private)
    assert (ours.transform(x) == released).all()
    assert (ours.predict(x) == np.unique(np.asarray(label))[(fitted.predict(x) == "walk").astype(int)]).all()


def test_private_variables_have_names(frame):
    table = frame[["user", "age"]]
    assert list(private_columns(table, N)) == list(private_columns(dict(table), N)) == ["user", "age"]
    assert list(private_columns(table.to_numpy(), N)) == ["0", "1"]
    assert list(private_columns(table["user"], N)) == ["sensitive_features"]
    assert encode("age", private_columns(table.to_numpy(), N)["1"], None, None).classes is None


def test_booleans_come_back_as_booleans(data, fitted):
    x, y, s = data
    ours = PrivacyTransformer(**TINY).fit(x, y == "walk", sensitive_features=s)
    assert ours.predict(x).dtype == bool
    assert (ours.predict(x) == (fitted.predict(x) == "walk")).all()


def test_pandas_in_and_out(data, fitted):
    x, y, s = data
    assert fitted.n_features_in_ == 4
    assert list(fitted.feature_names_in_) == ["a", "b", "c", "d"]
    released = (
        clone(fitted).set_output(transform="pandas").fit(*data[:2], sensitive_features=data[2]).transform(x)
    )
    assert list(released.columns) == [f"privacytransformer{i}" for i in range(3)]
    assert list(released.columns) == list(fitted.get_feature_names_out())
    assert released.index.equals(x.index)
    with pytest.raises(ValueError, match="feature names"):
        fitted.transform(x[["b", "a", "c", "d"]])


def test_weights(data, fitted):
    x, y, s = data
    more = pd.concat([x, x[:10] + 1e3], ignore_index=True)
    labels, users = [*y, *["hop"] * 10], [*s, *["dan"] * 10]

    def train(weights):
        return PrivacyTransformer(**TINY).fit(more, labels, sensitive_features=users, sample_weight=weights)

    # Rows of weight 0 are not there, with all their classes; equal weights are no weights.
    ours = train([2.5] * N + [0.0] * 10)
    assert (ours.transform(x) == fitted.transform(x)).all()
    assert list(ours.classes_) == ["run", "walk"]


QUANTITY = dict(privacy_weight=0.0, n_components=8, public_widths=(), batch_size=10, max_epochs=100)


@pytest.fixture(scope="module")
def income(data):
    return 50_000 + 10_000 * StandardScaler().fit_transform(data[0])[:, 0]


def test_a_quantity_is_predicted_in_its_own_unit(data, income):
    x, weights = data[0], np.linspace(0.5, 1.5, N)
    ours = PrivacyTransformer(**QUANTITY).fit(x, income, sample_weight=weights)
    assert ours.predict(x).shape == (N,)
    assert ours.score(x, income) > 0.5
    assert abs(ours.predict(x).mean() - income.mean()) < 3000
    assert is_regressor(ours)
    assert not hasattr(ours, "predict_proba")
    assert not hasattr(ours, "classes_")
    # Nothing is hidden, so nothing is told about it.
    assert "privacy" not in ours.history_["losses"]
    assert "probe" not in ours.history_["measures"]
    # Whole numbers are a quantity only when it is said.
    with pytest.raises(ValueError, match="y has 60 classes in 60 rows: say in kinds"):
        PrivacyTransformer(**QUANTITY).fit(x, np.round(income))
    rounded = PrivacyTransformer(**QUANTITY, kinds={"y": "continuous"})
    assert rounded.fit(x, np.round(income).astype(int), sample_weight=weights).score(x, income) > 0.5


def test_heavier_rows_count_for_more(data, income):
    x, first = data[0], np.arange(N) < N // 2
    contradictory = np.where(first, income, 100_000 - income)
    for weights, good in ((np.where(first, 1.0, 1e-3), first), (np.where(first, 1e-3, 1.0), ~first)):
        ours = PrivacyTransformer(**QUANTITY).fit(x, contradictory, sample_weight=weights)
        assert ours.score(x[good], contradictory[good]) > 0.3
        assert ours.score(x[~good], contradictory[~good]) < 0
        assert ours.score(x, contradictory, sample_weight=weights) > 0.3


def test_a_quantity_is_hidden_whatever_its_unit(frame):
    more = pd.concat([frame] * 4, ignore_index=True).sample(frac=1, random_state=0)
    x, y = more[["a", "b", "c", "d"]], more["activity"]

    def probe(weight, age):
        settings = dict(n_components=4, private_widths=(16,), public_widths=(), batch_size=60, max_epochs=60)
        ours = PrivacyTransformer("kdi", privacy_weight=weight, **settings).fit(x, y, sensitive_features=age)
        return ours.history_["measures"]["probe"]["sensitive_features"][-1]

    open_, hidden = probe(0.0, more["age"]), probe(1.0, more["age"])
    assert open_ > 0.3
    assert hidden < open_ - 0.2
    assert probe(1.0, 12 * more["age"]) == pytest.approx(hidden, abs=0.05)  # in months


def test_several_variables_have_weights_of_their_own(frame, data):
    x, y, _ = data
    settings = {**TINY, "objective": "lsdn", "max_epochs": 60, "batch_size": 10}

    def losses(weight):
        ours = PrivacyTransformer(**settings, privacy_weight=weight)
        return ours.fit(x, y, sensitive_features=frame[["user", "age"]]).history_["losses"]

    open_, hidden = losses(0.0), losses({"user": 0.0, "age": 1e3})
    assert set(open_["privacy"]) == {"user", "age"}
    assert open_["privacy"] == losses({"user": 0.0, "age": 0.0})["privacy"]
    assert hidden["privacy"] != open_["privacy"]
    assert all(loss > 0 for loss in open_["discriminator"])
    with pytest.raises(ValueError, match=r"must name the private variables \['age', 'user'\]"):
        losses({"user": 1.0})


def test_without_anything_to_hide_it_must_be_said(data):
    transformer = PrivacyTransformer(**TINY)
    with pytest.raises(ValueError, match=r"needs sensitive_features=.*privacy_weight=0.0"):
        transformer.fit(*data[:2])
    with pytest.raises(NotFittedError):
        transformer.transform(data[0])


@pytest.mark.parametrize(
    ("settings", "change", "message"),
    [
        ({}, dict(sensitive_features=np.arange(59) % 2), "one value for each of the 60 rows"),
        ({}, dict(sensitive_features="user"), "one value for each of the 60 rows"),
        ({}, dict(sensitive_features=np.zeros((60, 0))), "must have columns"),
        ({}, dict(sensitive_features={1: np.arange(60) % 2, "1": np.arange(60) % 3}), "a name of its own"),
        ({}, dict(sensitive_features=["ann"] * 60), "sensitive_features has one class only, ann"),
        ({}, dict(sensitive_features=["ann", None] * 30), "sensitive_features has missing values"),
        ({}, dict(sensitive_features=pd.Series([1, pd.NA] * 30, dtype="Int64")), "has missing"),
        ({}, dict(sensitive_features=[0.0, np.nan] * 30), "missing or infinite"),
        ({}, dict(sensitive_features=pd.Series([1, "1"] * 30, dtype=object)), "mixes text"),
        ({}, dict(sensitive_features=np.arange(60) * 1j), "must hold text, numbers"),
        ({}, dict(sensitive_features=np.arange(60)), "60 classes in 60 rows: say in kinds"),
        ({}, dict(sensitive_features=np.arange(60) / 7), "is continuous, but mmd compares classes: set"),
        ({}, dict(y=["run"] * 60), "y has one class only, run"),
        ({}, dict(y=[[0, 1]] * 60), "1d array"),
        ({}, dict(y=[0.5, np.nan] * 30), "Input y contains NaN"),
        ({}, dict(sample_weight=[1.0] * 59), "one number for each of the 60 rows"),
        ({}, dict(sample_weight=[-1.0] * 60), "not negative"),
        ({}, dict(sample_weight=[0.0] * 60), "not all zero"),
        (dict(objective="magic"), {}, "objective must be one of mmd"),
        (dict(privacy_weight=-1.0), {}, "privacy_weight.* must be a finite number, not negative"),
        (dict(privacy_weight={"usr": 1.0}), {}, r"must name the private variables \['sensitive_features'\]"),
        (dict(n_components=0), {}, "n_components must be a whole number"),
        (dict(private_widths=20), {}, "private_widths must be a tuple of whole numbers, got 20"),
        (dict(public_widths=(4, 0)), {}, "public_widths must be a whole number of at least 1, got 0"),
        (dict(max_epochs=2.5), {}, "max_epochs must be a whole number"),
        (dict(batch_size=0), {}, "batch_size must be a whole number"),
        (dict(kinds={"user": "category"}), {}, "kinds must map y, sensitive_features to"),
        (dict(kinds={"y": "ordinal"}), {}, "kinds must map y, sensitive_features to"),
        (dict(kinds={"y": "continuous"}), {}, "y does not hold numbers, so it is a category"),
        (dict(kinds={"y": "category"}), dict(y=np.arange(60) / 7), "y holds fractions, so it is continuous"),
        (dict(scale=False), dict(X=np.full((60, 4), 1e39)), "too large for float32"),
        ({}, dict(X=np.resize([1e200, -1e200, 0.0], (60, 4))), "too large for float32"),
        ({}, dict(X=np.full((60, 4), np.nan)), "contains NaN"),
        ({}, dict(X=pd.DataFrame({"a": [1.0] * 60, "town": ["Bern"] * 60})), "column 'town' does not hold"),
        ({}, dict(X=pd.DataFrame({"a": [1.0] * 60, "born": pd.Timestamp(0)})), "column 'born' does not hold"),
    ],
)
def test_mistakes_are_told_in_a_sentence(data, settings, change, message):
    x, y, s = data
    arguments = {"X": x, "y": y, "sensitive_features": s, **change}
    with pytest.raises((TypeError, ValueError), match=message):
        PrivacyTransformer(**{**TINY, **settings}).fit(**arguments)


def test_divergence_is_told(data):
    x, y, s = data
    large = PrivacyTransformer(**TINY, objective="kdi", privacy_weight=3e38)
    with pytest.warns(ConvergenceWarning, match="training diverged"):
        ours = large.fit(x, y, sensitive_features=s)
    assert ours.status_ == "diverged"
    assert np.isfinite(ours.transform(x)).all()


def test_pipelines_and_searches_route_what_is_hidden(data, fitted):
    x, y, s = data
    with sklearn.config_context(enable_metadata_routing=True):
        private = PrivacyTransformer(**TINY).set_fit_request(sensitive_features=True, sample_weight=True)
        last = LogisticRegression().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        pipeline = make_pipeline(private, last)
        search = GridSearchCV(pipeline, {"privacytransformer__privacy_weight": [4.0]}, cv=2)
        search.fit(x, y, sensitive_features=s, sample_weight=np.full(N, 3.0))
        assert set(search.predict(x)) <= {"run", "walk"}
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        assert (search.best_estimator_[0].transform(x) == fitted.transform(x)).all()
        # Both did arrive.
        with pytest.raises(ValueError, match="needs sensitive_features="):
            clone(pipeline).fit(x, y)
        with pytest.raises(ValueError, match="sample_weight must be finite, not negative"):
            clone(pipeline).fit(x, y, sensitive_features=s, sample_weight=np.full(N, -1.0))


def test_searches_score_by_probabilities(data):
    x, y, s = data
    search = GridSearchCV(PrivacyTransformer(**TINY), {"privacy_weight": [0.0, 4.0]}, cv=2, scoring="roc_auc")
    with sklearn.config_context(enable_metadata_routing=True):
        search.fit(x, y, sensitive_features=s)
    assert (search.cv_results_["mean_test_score"] >= 0).all()


def test_pipelines_without_routing(data, fitted):
    x, y, s = data
    pipeline = make_pipeline(PrivacyTransformer(**TINY), LogisticRegression())
    pipeline.fit(x, y, privacytransformer__sensitive_features=s)
    assert (pipeline[0].transform(x) == fitted.transform(x)).all()


def test_what_it_predicts_is_known_once_y_is(fitted):
    assert is_classifier(fitted)
    assert not is_classifier(clone(fitted))
    assert is_classifier(PrivacyTransformer(kinds={"y": "category"}))
    assert is_regressor(PrivacyTransformer(kinds={"y": "continuous"}))
    assert not hasattr(clone(fitted), "classes_")


def test_saved_and_loaded(data, fitted, tmp_path):
    x, _, _ = data
    path = tmp_path / "new folder" / "transformer.npz"
    fitted.save(path)
    loaded = PrivacyTransformer.load(path)
    assert (loaded.transform(x) == fitted.transform(x)).all()
    assert (loaded.predict_proba(x) == fitted.predict_proba(x)).all()
    assert loaded.predict(x).tolist() == fitted.predict(x).tolist()
    assert loaded.get_params() == fitted.get_params()
    assert loaded.history_ == fitted.history_
    assert (loaded.n_iter_, loaded.status_, loaded.n_features_in_) == (2, "finished", 4)
    assert list(loaded.get_feature_names_out()) == list(fitted.get_feature_names_out())
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(x[["b", "a", "c", "d"]])
    assert [entry.name for entry in path.parent.iterdir()] == ["transformer.npz"]
    with pytest.raises(NotFittedError):
        PrivacyTransformer().save(path)


def test_a_file_that_is_damaged_is_refused(data, fitted, tmp_path):
    path, broken = tmp_path / "whole.npz", tmp_path / "broken.npz"
    fitted.save(path)
    whole, released = path.read_bytes(), fitted.transform(data[0])
    random = np.random.default_rng(0)
    refused = 0
    for i in random.integers(0, len(whole), 300):
        changed = bytes([whole[i] ^ 1 << int(random.integers(8))])
        for content in (whole[:i], whole[:i] + changed + whole[i + 1 :]):
            broken.write_bytes(content)
            try:
                loaded = PrivacyTransformer.load(broken)
            except ValueError:
                refused += 1
            else:  # a date of the archive, say
                assert (loaded.transform(data[0]) == released).all()
    assert refused > 500


class _Ran:
    def __reduce__(self):
        return (pytest.fail, ("a file ran code",))


def _rewritten(path, **changes):
    """The content of a file with other arrays or another header, under a digest that is right."""
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files if name != "header"}
        header = json.loads(bytes(stored["header"]))
    header |= changes.pop("header", {})
    arrays |= changes
    header["sha256"] = runner.digest(header, [arrays[name] for name in header["arrays"]])
    buffer = io.BytesIO()
    np.savez(buffer, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    return buffer.getvalue()


def test_a_file_that_was_made_up_is_refused(data, fitted, tmp_path):
    path, made_up = tmp_path / "whole.npz", tmp_path / "made_up.npz"
    fitted.save(path)
    made_up.write_bytes(_rewritten(path))
    assert (PrivacyTransformer.load(made_up).transform(data[0]) == fitted.transform(data[0])).all()
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.npy", b"0" * 10**7)
    objects = io.BytesIO()
    np.savez(objects, header=np.array([_Ran()], dtype=object))
    parameters = {"params": {**fitted.get_params(), "colour": "red"}}
    for content in (
        b"",
        pickle.dumps(_Ran()),
        bomb.getvalue(),
        objects.getvalue(),
        _rewritten(path, header={"format": "privjax-encoder"}),
        _rewritten(path, header={"version": 2}),
        _rewritten(path, header=parameters),
        _rewritten(path, header={"layers": [1, 1]}),
        _rewritten(path, header={"layers": [2, 1]}),
        _rewritten(path, header={"y": ["a", "b"]}),
        _rewritten(path, header={"feature_names": ["a"]}),
        _rewritten(path, header={"attributes": {}}),
        _rewritten(path, mean=np.zeros(5)),
        _rewritten(path, classes=np.array(["run"])),
        _rewritten(path, **{"private-0-kernel": np.zeros((4, 2), np.float32)}),
        _rewritten(path, **{"private-0-kernel": np.full((4, 3), "a")}),
    ):
        made_up.write_bytes(content)
        with pytest.raises(ValueError, match="made_up.npz"):
            PrivacyTransformer.load(made_up)
    with pytest.raises(FileNotFoundError):
        PrivacyTransformer.load(tmp_path / "nowhere.npz")


def test_the_private_half_alone_goes_to_the_device(data, fitted, tmp_path):
    x, path = data[0], tmp_path / "encoder.npz"
    header = fitted.export(path)
    assert header["input"]["names"] == ["a", "b", "c", "d"]
    assert header["parameters"] == 2 * 4 + 4 * 3 + 3
    np.testing.assert_allclose(runner.load(path)(x), fitted.transform(x), atol=1e-5)
    kept = path.read_bytes()
    assert fitted._model.private[0][0].tobytes() in kept
    assert not any(kernel.tobytes() in kept for kernel, _ in fitted._model.public)
    with pytest.raises(ValueError, match="to must end in .npz, got 'encoder.pkl'"):
        fitted.export(tmp_path / "encoder.pkl")
    for weight in (np.int64(2), np.float32(2), {"s": np.float32(2)}):  # as a search over arrays leaves it
        searched = copy.copy(fitted).set_params(privacy_weight=weight)
        told = searched.export(tmp_path / "searched.npz")["privacy_weight"]
        assert told == (2.0 if np.isscalar(weight) else {"s": 2.0})


def test_the_parity_of_digits_is_kept_and_the_digit_is_lost():
    x, s = load_digits(return_X_y=True)
    y = np.where(s % 2, "odd", "even")
    x_train, x_test, y_train, y_test, s_train, s_test = train_test_split(
        x, y, s, test_size=0.3, stratify=s, random_state=0
    )

    def release(weight):
        ours = PrivacyTransformer(
            privacy_weight=weight, n_components=20, private_widths=(200,), batch_size=125, max_epochs=25
        ).fit(x_train, y_train, sensitive_features=s_train)
        forest = RandomForestClassifier(100, random_state=0).fit(ours.transform(x_train), s_train)
        return ours.score(x_test, y_test), forest.score(ours.transform(x_test), s_test)

    (kept, leaked), (still_kept, still_leaked) = release(0.0), release(2.0)
    assert kept > 0.95
    assert leaked > 0.8
    assert still_kept > 0.88
    assert still_leaked < 0.5  # whoever knows the parity has one digit in five


WEIGHTS_ARE_NOT_REPEATS = {
    "check_sample_weight_equivalence_on_dense_data": "batches and dropout are drawn by rows, so a row of "
    "weight 2 is as good as two rows on average, but not to the last digit"
}


def test_check_estimator():
    # No hidden layers, as some twenty shapes are compiled; several batches, as training has.
    settings = dict(n_components=2, public_widths=(), batch_size=5, max_epochs=1)
    transformer = PrivacyTransformer(privacy_weight=0.0, **settings)
    results = check_estimator(transformer, expected_failed_checks=WEIGHTS_ARE_NOT_REPEATS, on_skip=None)
    failed = {result["check_name"] for result in results if result["status"] == "xfail"}
    assert failed == set(WEIGHTS_ARE_NOT_REPEATS)
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}  # runs where SCIPY_ARRAY_API is set
    assert sum(result["status"] == "passed" for result in results) > 50

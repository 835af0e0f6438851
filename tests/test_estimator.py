"""The scikit-learn estimator: results of `fit`, conventions of scikit-learn."""

import copy
import io
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

from privjax.estimator import PrivacyTransformer, _encode, _private_columns
from privjax.exporting import load_file
from privjax.files import read_arrays, write_arrays
from privjax.networks import nn_networks
from privjax.objectives import Objective, Schedule, make_objective
from privjax.training import fit

N = 60
TINY = dict(n_components=3, public_widths=(4,), max_epochs=2)


pytestmark = pytest.mark.usefixtures("quick_to_compile")


@pytest.fixture(scope="module")
def frame():
    """Sixty rows: column a depends on the activity, column b on the user."""
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


def test_it_equals_fit_on_scaled_rows_and_numbered_classes(data, fitted):
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


def test_the_release_of_a_row_is_independent_of_other_rows(data, fitted):
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
def test_classes_of_any_type_give_the_same_release(data, fitted, as_type):
    x, y, s = data
    released = fitted.transform(x)
    private = as_type(s.map({"ann": 0, "bob": 1, "cid": 2}).to_numpy())
    label = as_type((y == "walk").to_numpy().astype(int))
    ours = PrivacyTransformer(**TINY).fit(x, label, sensitive_features=private)
    assert (ours.transform(x) == released).all()
    assert (ours.predict(x) == np.unique(np.asarray(label))[(fitted.predict(x) == "walk").astype(int)]).all()


def test_private_variables_have_names(frame):
    table = frame[["user", "age"]]
    assert list(_private_columns(table, N)) == list(_private_columns(dict(table), N)) == ["user", "age"]
    assert list(_private_columns(table.to_numpy(), N)) == ["0", "1"]
    assert list(_private_columns(table["user"], N)) == ["sensitive_features"]
    assert _encode("age", _private_columns(table.to_numpy(), N)["1"], None, None).classes is None


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


def test_rows_of_weight_zero_are_dropped(data, fitted):
    x, y, s = data
    more = pd.concat([x, x[:10] + 1e3], ignore_index=True)
    labels, users = [*y, *["hop"] * 10], [*s, *["dan"] * 10]

    def train(weights):
        return PrivacyTransformer(**TINY).fit(more, labels, sensitive_features=users, sample_weight=weights)

    # Rows and classes of weight 0 are dropped; equal weights equal no weights.
    ours = train([2.5] * N + [0.0] * 10)
    assert (ours.transform(x) == fitted.transform(x)).all()
    assert list(ours.classes_) == ["run", "walk"]


QUANTITY = dict(privacy_weight=0.0, n_components=8, public_widths=(), batch_size=10, max_epochs=100)


@pytest.fixture(scope="module")
def income(data):
    return 50_000 + 10_000 * StandardScaler().fit_transform(data[0])[:, 0]


def test_a_quantity_is_predicted_in_its_unit(data, income):
    x, weights = data[0], np.linspace(0.5, 1.5, N)
    ours = PrivacyTransformer(**QUANTITY).fit(x, income, sample_weight=weights)
    assert ours.predict(x).shape == (N,)
    assert ours.score(x, income) > 0.5
    assert abs(ours.predict(x).mean() - income.mean()) < 3000
    assert is_regressor(ours)
    assert not hasattr(ours, "predict_proba")
    assert not hasattr(ours, "classes_")
    # Without a private variable the history has no privacy.
    assert "privacy" not in ours.history_["losses"]
    assert "probe" not in ours.history_["measures"]
    # Whole numbers are a quantity only if kinds says so.
    with pytest.raises(ValueError, match="y has 60 classes in 60 rows: say in kinds"):
        PrivacyTransformer(**QUANTITY).fit(x, np.round(income))
    rounded = PrivacyTransformer(**QUANTITY, kinds={"y": "continuous"})
    assert rounded.fit(x, np.round(income).astype(int), sample_weight=weights).score(x, income) > 0.5


def test_heavier_rows_have_more_influence(data, income):
    x, first = data[0], np.arange(N) < N // 2
    contradictory = np.where(first, income, 100_000 - income)
    for weights, good in ((np.where(first, 1.0, 1e-3), first), (np.where(first, 1e-3, 1.0), ~first)):
        ours = PrivacyTransformer(**QUANTITY).fit(x, contradictory, sample_weight=weights)
        assert ours.score(x[good], contradictory[good]) > 0.3
        assert ours.score(x[~good], contradictory[~good]) < 0
        assert ours.score(x, contradictory, sample_weight=weights) > 0.3


@pytest.mark.slow
def test_a_quantity_is_hidden_in_any_unit(frame):
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


def test_several_private_variables_have_separate_weights(frame, data):
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


def test_fit_without_private_variables_needs_weight_zero(data):
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
        ({}, dict(sensitive_features={1: np.arange(60) % 2, "1": np.arange(60) % 3}), "distinct names"),
        ({}, dict(sensitive_features=["ann"] * 60), "sensitive_features has one class only, ann"),
        ({}, dict(sensitive_features=["ann", None] * 30), "sensitive_features has missing values"),
        ({}, dict(sensitive_features=pd.Series([1, pd.NA] * 30, dtype="Int64")), "has missing"),
        ({}, dict(sensitive_features=[0.0, np.nan] * 30), "missing or infinite"),
        ({}, dict(sensitive_features=pd.Series([1, "1"] * 30, dtype=object)), "mixes text and others"),
        ({}, dict(sensitive_features=np.arange(60) * 1j), "must hold text, numbers"),
        ({}, dict(sensitive_features=np.arange(60)), "60 classes in 60 rows: say in kinds"),
        ({}, dict(sensitive_features=np.arange(60) / 7), "is continuous, but mmd compares classes: use"),
        ({}, dict(y=["run"] * 60), "y has one class only, run"),
        ({}, dict(y=[[0, 1]] * 60), "1d array"),
        ({}, dict(y=[0.5, np.nan] * 30), "Input y contains NaN"),
        ({}, dict(sample_weight=[1.0] * 59), r"sample_weight.shape == \(59,\), expected \(60,\)"),
        ({}, dict(sample_weight=[-1.0] * 60), "Negative values in data passed to `sample_weight`"),
        ({}, dict(sample_weight=[0.0] * 60), "at least one non-zero"),
        (dict(objective="magic"), {}, "objective must be one of mmd"),
        (dict(privacy_weight=-1.0), {}, "privacy_weight.* must be a finite number, not negative"),
        (dict(privacy_weight={"usr": 1.0}), {}, r"must name the private variables \['sensitive_features'\]"),
        (dict(n_components=0), {}, "n_components == 0, must be >= 1"),
        (dict(private_widths=20), {}, "private_widths must be an instance of .tuple, list., not int"),
        (dict(public_widths=(4, 0)), {}, "public_widths == 0, must be >= 1"),
        (dict(max_epochs=2.5), {}, "max_epochs must be at least 1, a whole number"),
        (dict(batch_size=0), {}, "batch_size must be at least 1, a whole number"),
        (dict(kinds={"user": "category"}), {}, "kinds must map y, sensitive_features to"),
        (dict(kinds={"y": "ordinal"}), {}, "kinds must map y, sensitive_features to"),
        (dict(kinds={"y": "continuous"}), {}, "y does not hold numbers, so it is a category"),
        (dict(kinds={"y": "category"}), dict(y=np.arange(60) / 7), "y holds fractions, so it is continuous"),
        (dict(scaling="none"), dict(X=np.full((60, 4), 1e39)), "too large for float32"),
        ({}, dict(X=np.resize([1e200, -1e200, 0.0], (60, 4))), "too large for float32"),
        ({}, dict(X=np.full((60, 4), np.nan)), "contains NaN"),
        ({}, dict(X=pd.DataFrame({"a": [1.0] * 60, "town": ["Bern"] * 60})), "column 'town' does not hold"),
        ({}, dict(X=pd.DataFrame({"a": [1.0] * 60, "born": pd.Timestamp(0)})), "column 'born' does not hold"),
    ],
)
def test_errors_are_one_sentence(data, settings, change, message):
    x, y, s = data
    arguments = {"X": x, "y": y, "sensitive_features": s, **change}
    with pytest.raises((TypeError, ValueError), match=message):
        PrivacyTransformer(**{**TINY, **settings}).fit(**arguments)


def test_divergence_warns(data):
    x, y, s = data
    large = PrivacyTransformer(**TINY, objective="kdi", privacy_weight=3e38)
    with pytest.warns(ConvergenceWarning, match="training diverged"):
        ours = large.fit(x, y, sensitive_features=s)
    assert ours.status_ == "diverged"
    assert np.isfinite(ours.transform(x)).all()


def test_pipelines_and_searches_route_the_private_variable(data, fitted):
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
        # Both arguments reach fit.
        with pytest.raises(ValueError, match="needs sensitive_features="):
            clone(pipeline).fit(x, y)
        with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
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


def test_the_type_of_estimator_follows_from_y(fitted):
    assert is_classifier(fitted)
    assert not is_classifier(clone(fitted))
    assert is_classifier(PrivacyTransformer(kinds={"y": "category"}))
    assert is_regressor(PrivacyTransformer(kinds={"y": "continuous"}))
    assert not hasattr(clone(fitted), "classes_")


def test_save_and_load_restore_the_transformer(data, fitted, tmp_path):
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


def test_a_damaged_file_is_refused(data, fitted, tmp_path):
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
            else:  # for instance a date of the archive
                assert (loaded.transform(data[0]) == released).all()
    assert refused > 500


class _Ran:
    def __reduce__(self):
        return (pytest.fail, ("a file ran code",))


def test_a_forged_file_is_refused(data, fitted, tmp_path):
    path, forged = tmp_path / "whole.npz", tmp_path / "forged.npz"
    fitted.save(path)
    header, arrays = read_arrays(path)
    write_arrays(forged, header, arrays)
    assert (PrivacyTransformer.load(forged).transform(data[0]) == fitted.transform(data[0])).all()

    def refused():
        with pytest.raises(ValueError, match="forged.npz"):
            PrivacyTransformer.load(forged)

    bomb, objects = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.npy", b"0" * 10**7)
    np.savez(objects, header=np.array([_Ran()], dtype=object))
    for content in (b"", pickle.dumps(_Ran()), bomb.getvalue(), objects.getvalue()):
        forged.write_bytes(content)
        refused()
    for header_changes in (
        {"format": "privjax-encoder"},
        {"params": {**header["params"], "colour": "red"}},
        {"y": ["a", "b"]},
        {"feature_names": ["a"]},
        {"attributes": {}},
        {"input_shape": [5]},
        {"networks": None},
    ):
        write_arrays(forged, header | header_changes, arrays)
        refused()
    for array_changes in (
        {"scaling/shift": np.zeros(5, np.float32)},
        {"classes": np.array(["run"])},
        {"params/Dense_0/kernel": np.zeros((4, 2), np.float32)},
        {"params/Dense_0/kernel": np.full((4, 3), np.nan, np.float32)},
        {"public/0/kernel": np.zeros((2, 4), np.float32)},
        {"public/0/kernel": np.full((3, 4), "a")},
        {"public/2/bias": np.zeros(3, np.float32)},
    ):
        write_arrays(forged, header, arrays | array_changes)
        refused()
    with pytest.raises(FileNotFoundError):
        PrivacyTransformer.load(tmp_path / "absent.npz")


def test_export_writes_the_encoder_alone(data, fitted, tmp_path):
    x, path = data[0], tmp_path / "encoder.npz"
    header = fitted.export(path)
    assert (header.names, header.objective, header.privacy_weight) == (("a", "b", "c", "d"), "mmd", 4.0)
    assert header.parameters == 2 * 4 + 4 * 3 + 3
    np.testing.assert_allclose(load_file(path)(x), fitted.transform(x), atol=1e-5)
    np.testing.assert_allclose(fitted.encoder_(x), fitted.transform(x), atol=1e-5)
    content = path.read_bytes()
    assert np.asarray(fitted.encoder_.params["Dense_0"]["kernel"]).tobytes() in content
    assert not any(layer.arrays[0].tobytes() in content for layer in fitted._public)
    with pytest.raises(ValueError, match=r"to must end in .npz, .stablehlo, .onnx, got 'encoder.pkl'"):
        fitted.export(tmp_path / "encoder.pkl")
    for weight in (np.int64(2), np.float32(2), {"s": np.float32(2)}):  # as after a grid search
        searched = copy.copy(fitted).set_params(privacy_weight=weight)
        found = searched.export(tmp_path / "searched.npz").privacy_weight
        assert found == (2.0 if np.isscalar(weight) else {"s": 2.0})


def test_an_objective_may_be_a_record(data, fitted, tmp_path):
    x, y, s = data
    record = make_objective("mmd")
    ours = PrivacyTransformer(record, **TINY).fit(x, y, sensitive_features=s)
    assert (ours.transform(x) == fitted.transform(x)).all()
    assert ours.export(tmp_path / "encoder.npz").objective == "mmd"
    ours.save(tmp_path / "transformer.npz")
    loaded = PrivacyTransformer.load(tmp_path / "transformer.npz")
    assert loaded.objective == "mmd"
    assert (loaded.transform(x) == fitted.transform(x)).all()

    def squared_mean(z, p, **_):
        return (z.mean(0) ** 2).sum()

    own = PrivacyTransformer(Objective("own", squared_mean, continuous=True), **TINY)
    assert own.fit(x, y, sensitive_features=np.linspace(0, 1, N)).status_ == "finished"


@pytest.mark.slow
def test_the_parity_of_digits_is_kept_and_the_digit_is_hidden():
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
    assert still_leaked < 0.5  # the parity alone gives one digit in five


WEIGHTS_ARE_NOT_REPEATS = {
    "check_sample_weight_equivalence_on_dense_data": "batches and dropout are drawn per row, so a row "
    "of weight 2 equals two rows on average only"
}


@pytest.mark.slow
def test_check_estimator():
    # Without hidden layers, because some twenty shapes compile; with several batches, as in training.
    settings = dict(n_components=2, public_widths=(), batch_size=5, max_epochs=1)
    transformer = PrivacyTransformer(privacy_weight=0.0, **settings)
    results = check_estimator(transformer, expected_failed_checks=WEIGHTS_ARE_NOT_REPEATS, on_skip=None)
    failed = {result["check_name"] for result in results if result["status"] == "xfail"}
    assert failed == set(WEIGHTS_ARE_NOT_REPEATS)
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}  # runs where SCIPY_ARRAY_API is set
    assert sum(result["status"] == "passed" for result in results) > 50

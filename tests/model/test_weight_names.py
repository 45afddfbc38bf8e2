"""Names of weights in other programs, and what shapes tell of a checkpoint."""

import pytest

from albert.model import checkpoints, encoder, pretraining_heads, weight_names

BERT = encoder.AlbertConfig(
    vocab_size=20, embedding_size=8, hidden_size=8, num_hidden_layers=3, num_hidden_groups=3,
    num_attention_heads=2, intermediate_size=12, max_position_embeddings=8,
)  # fmt: skip
GOOGLE_LAYER = """
    attention/self/query/kernel attention/self/query/bias attention/self/key/kernel
    attention/self/key/bias attention/self/value/kernel attention/self/value/bias
    attention/output/dense/kernel attention/output/dense/bias attention/output/LayerNorm/gamma
    attention/output/LayerNorm/beta intermediate/dense/kernel intermediate/dense/bias
    output/dense/kernel output/dense/bias output/LayerNorm/gamma output/LayerNorm/beta
""".split()


@pytest.mark.parametrize("architecture", weight_names.ARCHITECTURES.values(), ids=lambda a: a[0])
def test_the_table_of_names_is_one_to_one(architecture):
    inner = 3 if architecture is weight_names.ALBERT else 1
    table = weight_names.name_table(2, inner, architecture)
    mapping = 2 if architecture is weight_names.ALBERT else 0
    assert len(set(table.values())) == len(table) == 18 + mapping + 2 * inner * 16
    assert weight_names.count_blocks(table.values(), architecture) == (2, inner)


def test_names_of_google_are_those_of_our_variables():
    theirs = [f"bert/encoder/layer_{n}/{name}" for n in range(3) for name in GOOGLE_LAYER]
    ours = {weight_names.from_google(name) for name in theirs}
    expected = set(checkpoints.variables_by_name(pretraining_heads.PretrainingModel(BERT)))
    assert len(ours) == len(theirs)
    assert ours == {name for name in expected if name.startswith("bert/encoder/")}
    same = "bert/encoder/transformer/group_0/inner_group_0/LayerNorm/beta"
    assert weight_names.from_google(same) == same
    assert weight_names.from_google("bert/encoder/layer_1/output/dense/kernel/adam_m") == (
        "bert/encoder/transformer/group_1/inner_group_0/ffn_1/intermediate/output/dense/kernel/"
        "adam_m"
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight"),
        ("bert.embeddings.LayerNorm.beta", "bert.embeddings.LayerNorm.bias"),
        ("pooler.dense.weight", "bert.pooler.dense.weight"),
        ("cls.predictions.bias", "cls.predictions.bias"),
    ],
)
def test_older_and_shorter_names_are_brought_to_one_form(old, new):
    assert weight_names.full_name(old, weight_names.BERT) == new


def shapes(**changes):
    config = encoder.AlbertConfig(**{**BERT.to_dict(), **changes})
    variables = checkpoints.variables_by_name(encoder.AlbertModel(config))
    return {name: variable.shape.as_list() for name, variable in variables.items()}


def test_sizes_that_differ_are_explained():
    albert = shapes(embedding_size=4, num_hidden_groups=1)
    assert weight_names.explain_mismatch(shapes(), albert) == (
        "its weights are of a BERT with embedding_size 8 (4), num_hidden_groups 3 (1); brackets "
        "have the values of the configuration. Give the model's own bert_config.json or "
        "config.json as albert_config_file"
    )
    assert "are of an ALBERT with embedding_size 4 (8)" in weight_names.explain_mismatch(
        albert, shapes()
    )
    assert weight_names.explain_mismatch(shapes(), shapes()) == ""
    assert weight_names.explain_mismatch({"resnet/conv1": [2]}, shapes()) == ""

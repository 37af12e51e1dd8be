"""The language beyond single cases: what Paddle's engine gets wrong, what Cairn adds, how errors read."""

import json

import numpy as np
import pytest

from aoa_testing import desc, evaluate, request, resolve, run, whole


def shards(key, shape, count, axis, dtype="float32"):
    local = list(shape)
    local[axis] //= count
    return [
        desc([key, local, list(shape), [r * local[axis] if i == axis else 0 for i in range(len(shape))], dtype])
        for r in range(count)
    ]


def arange(*shape, start=0):
    return np.arange(start, start + np.prod(shape), dtype=np.float32).reshape(shape)


def values(statements, sources, destination, queries=None, source_descs=None, **config):
    """Returns the arrays of all targets."""
    source_descs = source_descs or [whole(name, array.shape) for name, array in sources.items()]
    queries = queries or destination
    status, answer = resolve(request({"aoa_statements": statements, **config}, source_descs, destination, queries))
    assert status == 0, answer
    return [evaluate(got, sources) for got in answer["answers"]]


def build_error(statements, source, destination=None, **config):
    status, answer = resolve(request({"aoa_statements": statements, **config}, source, destination))
    assert status == 1, answer
    assert answer["error"] == answer["errors"][0]
    return answer["error"]


A44 = whole("a", [4, 4])


# -- backwards -------------------------------------------------------------------------------------------------------


def rank_blocked(parts, ranks):
    """Puts each rank's share of every part side by side along axis 1."""
    return np.concatenate([np.split(part, ranks, 1)[r] for r in range(ranks) for part in parts], 1)


def test_reverse_of_fused_ffn_counts_shards_where_the_fused_name_stands():
    gate, up = arange(2, 4), arange(2, 4, start=100)
    fused = rank_blocked([gate, up], 2)
    got = values(
        ["m.gate, m.up -> m.fused, fused_ffn"],
        {"m.fused": fused},
        [whole("m.gate", [2, 4]), whole("m.up", [2, 4])],
        source_descs=shards("m.fused", [2, 8], 2, 1),
        aoa_config_reverse=True,
    )
    np.testing.assert_array_equal(got[0], gate)
    np.testing.assert_array_equal(got[1], up)


def test_reverse_of_fused_qkv_old():
    q, k, v = arange(1, 8), arange(1, 4, start=100), arange(1, 4, start=200)
    statement = "q, k, v -> f, fused_qkv_old, num_heads=8, num_key_value_groups=4"
    fused = rank_blocked([q, k, v], 4)
    got = values([statement], {"f": fused}, [whole("q", [1, 8]), whole("k", [1, 4]), whole("v", [1, 4])],
                 source_descs=shards("f", [1, 16], 4, 1), aoa_config_reverse=True)
    for have, want in zip(got, (q, k, v)):
        np.testing.assert_array_equal(have, want)


def test_reverse_of_fused_to_gate_and_up():
    gate, up = arange(2, 4), arange(2, 4, start=100)
    got = values(["f -> g, u, fused_ffn"], {"g": gate, "u": up}, shards("f", [2, 8], 2, 1), aoa_config_reverse=True)
    np.testing.assert_array_equal(np.concatenate(got, 1), rank_blocked([gate, up], 2))


def test_star_in_reverse_stands_for_the_side_it_is_on():
    fused = arange(6, 2)
    got = values(["e.*.w -> f, axis=0"], {"f": fused}, [whole(f"e.{i}.w", [2, 2]) for i in (0, 2, 10)],
                 aoa_config_reverse=True)
    for have, want in zip(got, np.split(fused, 3)):
        np.testing.assert_array_equal(have, want)


def test_layer_id_offset_in_reverse():
    sources = {f"l.{n}.w": arange(2, start=10 * n) for n in (0, 1)}
    got = values(["l.$LAYER_ID_OFFSET.w -> l.$LAYER_ID_OFFSET.w"], sources, [whole("l.1.w", [2]), whole("l.2.w", [2])],
                 aoa_config_reverse=True)
    np.testing.assert_array_equal(got, [sources["l.0.w"], sources["l.1.w"]])


# -- placeholders ----------------------------------------------------------------------------------------------------


def test_layer_id_and_star_in_one_name():
    sources = {f"l.{n}.e.{x}.w": arange(2, 2, start=100 * n + 10 * x) for n in (0, 3) for x in (0, 1, 10)}
    got = values(["l.$LAYER_ID.e.*.w -> l.$LAYER_ID.f, axis=0"], sources, [whole(f"l.{n}.f", [6, 2]) for n in (0, 3)])
    for n, have in zip((0, 3), got):
        np.testing.assert_array_equal(have, np.concatenate([sources[f"l.{n}.e.{x}.w"] for x in (0, 1, 10)]))


def test_only_combinations_that_exist():
    keys = ["l.1.e.0.w", "l.1.e.1.w", "l.2.e.5.w"]
    statement = "l.$LAYER_ID.e.$EXPERT_ID.w -> m.$LAYER_ID.x.$EXPERT_ID.w"
    status, answer = resolve(request({"aoa_statements": [statement]}, [whole(key, [2]) for key in keys]))
    assert status == 0
    assert answer["stages"][1]["statements"] == [
        "l.1.e.0.w -> m.1.x.0.w", "l.1.e.1.w -> m.1.x.1.w", "l.2.e.5.w -> m.2.x.5.w"]


def test_placeholders_of_a_temporary_come_from_the_destination():
    got = values(["a.0 -> t.0.w", "a.1 -> t.1.w", "t.$LAYER_ID.w -> d.$LAYER_ID.w"],
                 {"a.0": arange(2), "a.1": arange(2, start=5)}, [whole("d.0.w", [2]), whole("d.1.w", [2])])
    np.testing.assert_array_equal(got, [[0, 1], [5, 6]])


def test_patterns_are_full_matches_and_never_optimizer_states():
    source = [
        whole("l.0.w", [2]),
        whole("l.1.w.moment1_0", [2]),
        whole("l.2.w.beta1_pow_acc_0", [1]),
        whole("xl.3.w", [2]),
    ]
    status, answer = resolve(request({"aoa_statements": ["l.$LAYER_ID.w -> d.$LAYER_ID.w"]}, source))
    assert status == 0
    # Layer 1 is known by its moments, so it is a weight. Layer 2 has nothing but a scalar.
    assert answer["stages"][1]["statements"] == ["l.0.w -> d.0.w", "l.1.w -> d.1.w"]


@pytest.mark.parametrize("statement", ["l.$LAYER_ID.nope -> d.$LAYER_ID", "l.*.nope -> d, axis=0",
                                       "l.$LAYER_ID_OFFSET.nope -> d.$LAYER_ID_OFFSET"])
def test_a_statement_that_expands_to_nothing_is_an_error(statement):
    error = build_error([statement], [whole("l.0.weight", [2])])
    assert error["reason"] == "MAPPING_MACRO" and error["statement"] == statement
    assert "nope" in error["message"] and "l.0.weight" in error["message"]  # and what was perhaps meant


# -- fused layouts ---------------------------------------------------------------------------------------------------


def test_temporaries_give_way_to_real_tensors():
    q, k, v, q0 = arange(2, 4), arange(2, 2, start=20), arange(2, 2, start=40), arange(3, start=90)
    got = values(["Q, K, V -> f, fused_qkv, num_heads=4, num_key_value_groups=2"],
                 {"Q": q, "K": k, "V": v, "Q0": q0}, [whole("f", [2, 8]), whole("Q0", [3])])
    np.testing.assert_array_equal(
        got[0], np.stack([q[:, 0], q[:, 1], k[:, 0], v[:, 0], q[:, 2], q[:, 3], k[:, 1], v[:, 1]], 1)
    )
    np.testing.assert_array_equal(got[1], q0)


@pytest.mark.parametrize("heads, groups, ranks", [(6, 6, 4), (8, 2, 4)])
def test_heads_that_the_ranks_do_not_divide_are_refused(heads, groups, ranks):
    width = (heads + 2 * groups) * ranks
    error = build_error([f"a -> b, fused_qkv_old, num_heads={heads}, num_key_value_groups={groups}"],
                        shards("a", [2, width], ranks, 1), [whole("b", [2, width])])
    assert str(ranks) in error["message"] and str(heads) in error["message"] and str(groups) in error["message"]


def test_explicit_kv_heads_and_legacy_switch():
    source, destination = shards("a", [1, 16], 4, 1), [whole("b", [1, 16])]
    fused = {"a": arange(1, 16)}

    def one(text, **config):
        return values([text], fused, destination, source_descs=source, **config)[0].ravel().tolist()

    today = one("a -> b, fused_qkv_old, num_heads=8, num_key_value_groups=4")
    assert one("a -> b, fused_qkv_old, num_heads=8, num_kv_heads=4") == today
    # An old config counted query heads per KV head, and called the layout fused_qkv.
    assert one("a -> b, fused_qkv, num_heads=8, num_key_value_groups=2", legacy_qkv=True) == today
    error = build_error(["a -> b, fused_qkv, num_heads=8, num_key_value_groups=2"], source, destination)
    assert "legacy_qkv" in error["message"]


def test_gate_is_the_first_half_and_up_the_second():
    gate, up = arange(2, 4), arange(2, 4, start=50)
    whole_fused = values(["g, u -> f, fused_ffn"], {"g": gate, "u": up}, [whole("f", [2, 8])])[0]
    np.testing.assert_array_equal(whole_fused, np.concatenate([gate, up], 1))


def test_transposed_source_keeps_its_shard_count():
    fused = rank_blocked([arange(2, 4), arange(2, 4, start=50)], 2)
    got = values(["f^T -> d, fused_ffn"], {"f": fused.T}, [whole("d", [2, 8])], source_descs=shards("f", [8, 2], 2, 0))
    np.testing.assert_array_equal(got[0], rank_blocked([arange(2, 4), arange(2, 4, start=50)], 1))


# -- queries ---------------------------------------------------------------------------------------------------------


def test_answers_do_not_depend_on_the_order_of_queries():
    source = [whole("a", [2], "bfloat16"), whole("a.w_0", [2], "float32")]
    weight, master = whole("d", [2], "bfloat16"), whole("d.w_0", [2], "float32")
    for order in ([weight, master], [master, weight, master]):
        status, answer = resolve(request({"aoa_statements": ["a -> d"]}, source, [weight, master], order))
        assert status == 0
        for got in answer["answers"]:
            assert got["entries"][0]["source"]["dtype"] == got["target"]["dtype"]


def test_a_bfloat16_cast_does_not_make_a_float16():
    source, target = [whole("a", [2], "float32")], whole("d", [2], "float16")
    status, answer = resolve(request({"aoa_statements": ["a -> d, dtype='bfloat16'"]}, source, [target], [target]))
    assert status == 0
    error = answer["answers"][0]["error"]
    assert error["code"] == "INVALID_ARGUMENT" and "float16" in error["message"] and "bfloat16" in error["message"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_forgotten_transpose_is_refused_on_every_rank(rank):
    targets = shards("d", [8, 4], 2, 0)
    status, answer = resolve(request({"aoa_statements": ["a -> d"]}, [whole("a", [4, 8])], targets, [targets[rank]]))
    assert status == 0
    error = answer["answers"][0]["error"]
    assert error["reason"] == "MAPPING_RANGE" and error["code"] == "OUT_OF_RANGE"


def test_unknown_output_and_wrong_dimensions():
    queries = [whole("model.layers.0.w", [2]), whole("model.layer.0.w", [2, 2])]
    status, answer = resolve(request({"aoa_statements": []}, [whole("model.layer.0.w", [2])], None, queries))
    assert status == 0
    unknown, dims = (got["error"] for got in answer["answers"])
    assert unknown["code"] == "NOT_FOUND" and "did you mean 'model.layer.0.w'" in unknown["message"]
    assert dims["code"] == "INVALID_ARGUMENT" and "2 dimensions" in dims["message"]


def test_scalars_come_from_the_smallest_name():
    source = [whole("b", [2]), whole("a", [2])]
    target = whole("d.beta1_pow_acc_0", [1])
    status, answer = resolve(request({"aoa_statements": ["b, a -> d, axis=0"]}, source, [whole("d", [4])], [target]))
    assert status == 0
    (entry,) = answer["answers"][0]["entries"]
    assert entry["source"]["key"] == "a.beta1_pow_acc_0" and entry["target"] == target and entry["postprocess"] is None


def test_added_and_removed():
    status, answer = resolve(request({"aoa_statements": ["_ -> n", "b -> _"]}, [whole("a", [2]), whole("b", [2])],
                                     [whole("a", [2]), whole("n", [2])], [whole("n", [2])]))
    assert status == 0 and answer["answers"][0]["entries"] == [] and answer["outputs"] == ["a", "n"]


def test_many_parts_are_found_by_search():
    """There are so many slices that the engine searches instead of scanning; every window must be exact."""
    sources = {f"e.{i}.w": arange(3, 2, start=6 * i) for i in range(40)}
    stacked = np.concatenate([sources[f"e.{i}.w"] for i in range(40)])
    windows = [{**whole("f", [120, 2]), "global_offset": [low, 0], "local_shape": [size, 2]}
               for low in (0, 1, 59, 118) for size in (1, 2, 41) if low + size <= 120]
    got = values(["e.*.w -> f, axis=0"], sources, [whole("f", [120, 2])], windows)
    for window, have in zip(windows, got):
        low = window["global_offset"][0]
        np.testing.assert_array_equal(have, stacked[low:low + window["local_shape"][0]])
    back = values(
        ["e.*.w -> f, axis=0", "f -> g[0:40], axis=0", "g_39, g_0 -> h, axis=0"], sources, [whole("h", [6, 2])]
    )
    np.testing.assert_array_equal(back[0], np.concatenate([sources["e.39.w"], sources["e.0.w"]]))


def test_reshape_then_permute_finds_the_right_block():
    source = arange(6, 4)
    targets = shards("d", [3, 2, 4], 2, 1)
    got = values(["s -> t, reshape='[2, 3, 4]'", "t -> d, permute='[1, 0, 2]'"], {"s": source}, targets)
    np.testing.assert_array_equal(np.concatenate(got, 1), source.reshape(2, 3, 4).transpose(1, 0, 2))


def test_flattened_part_that_cuts_a_block_is_refused():
    target = {**whole("d", [6, 4]), "local_shape": [2, 4]}
    status, answer = resolve(request({"aoa_statements": ["s -> d, reshape='[2, 3, 2, 2]'"]}, [whole("s", [2, 3, 2, 2])],
                                     [whole("d", [6, 4])], [target]))
    assert status == 0 and answer["answers"][0]["error"]["reason"] == "MAPPING_SHAPE"


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("statements, dtype, reason, has", [
    (["a, b, c -> d, axis=0"], "float32", "MAPPING_SHAPE",
     ["'a' has shape (4, 8) and 'c' has (4, 9)",
      "the parts are 'a' float32 (4, 8), 'b' float32 (4, 8), 'c' float32 (4, 9)"]),
    (["a, b -> t, axis=0", "t, c -> d, axis=0"], "float32", "MAPPING_SHAPE",
     ["'t' has shape (8, 8) and 'c' has (4, 9)",
      "'t' float32 (8, 8) (made of 'a' float32 (4, 8), 'b' float32 (4, 8)), 'c' float32 (4, 9)"]),
    (["a, c -> d, axis=1"], "float16", "MAPPING_DTYPE", ["'c' is float16", "'a' float32 (4, 8), 'c' float16 (4, 9)"]),
])
def test_merge_of_parts_that_do_not_fit_names_each_source_tensor(statements, dtype, reason, has):
    sources = [whole("a", [4, 8]), whole("b", [4, 8]), whole("c", [4, 9], dtype)]
    status, answer = resolve(request({"aoa_statements": statements}, sources))
    assert status == 1 and answer["error"]["reason"] == reason
    for text in has:
        assert text in answer["error"]["message"], answer["error"]


@pytest.mark.parametrize("statement, has", [
    ("a - > d", "Unexpected character '-' at position 2"),
    ("a -> 'd", "never closed"),
    ("a d", "Expected RARROW"),
    ("a ->", "Expected IDENTIFIER"),
    ("a -> d,", "Expected IDENTIFIER"),
    ("a -> d, axis", "reserved word"),
    ("a -> d, axis=", "Unexpected value"),
    ("a -> d, axis=1, axis=1", "twice"),
    ("axis -> d", "reserved word"),
    ("a, b -> c, d, axis=0", "single name"),
    ("a -> d, permute=[1, 0]", "in quotes"),
    ("a -> d, permute='[1, 1]'", "no permutation"),
    ("a -> d, permute='x'", "list of axes"),
    ("a -> x, y, axis=2", "out of range"),
    ("a -> x, y", "axis"),
    ("a -> x, y, axis=0, sizes='[1, 2]'", "add up to 4"),
    ("a -> x, y, axis=0, sizes='[9223372036854775807, 9223372036854775807]'", "add up to 4"),
    ("a, b -> d, axis=0", "equal other dimensions"),
    ("a, i -> d, axis=0", "same dtype"),
    ("a -> d, dtype='float8_e4m3fn'", "Unsupported cast dtype: float8_e4m3fn"),
    ("a -> d, dtype='quux'", "float32"),
    ("i -> d, dtype='float32'", "not safe"),
    ("a -> d, dst_dtype='float32', src_dtype='float16'", "in this order"),
    ("a -> d, permute='[1, 0]', dtype='float16'", "one operator"),
    ("a -> d, colour='red'", "Unsupported attribute"),
    ("aa -> d", "did you mean 'a'"),
    ("a.w_0 -> d", "write 'a'"),
    ("a -> p[3:3], axis=0", "empty"),
    ("a -> p[0:99999999999], axis=0", "1048576"),
    ("a -> d, fused_ffn, num_heads=3", "Unsupported attribute"),
    ("a, b, a, b -> d, fused_ffn", "Unsupported fused_ffn macro format"),
    ("a -> d, fused_qkv_old, num_heads=7, num_key_value_groups=2", "divisible"),
    ("a -> d, fused_qkv_old, num_heads=8", "num_kv_heads"),
    ("a.$LAYER_ID -> d", "must contain all"),
    ("a.$LAYER_ID_OFFSET -> d", "must contain $LAYER_ID_OFFSET"),
    ("a, _ -> d, axis=0", "'_'"),
    ("_ -> _", "nothing"),
    ("a -> d, reshape='[2, 2, 2]'", "maps between"),
], ids=lambda value: value[:40])
def test_error_names_its_statement(statement, has):
    source = [A44, whole("b", [2, 3]), whole("i", [4, 4], "int8"), whole("a.0", [4])]
    error = build_error(["a -> fine", statement], source)
    assert has in error["message"]
    assert error["statement"] == statement and error["chain"]
    assert error["code"] in {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "OUT_OF_RANGE"}


def test_all_errors_at_once_and_no_follow_ups():
    status, answer = resolve(
        request(
            {"aoa_statements": ["x -> t", "t -> d0", "a -> p, q, r, axis=0", "y -> d1"]},
            [A44],
            [whole("d0", [4, 4]), whole("d2", [4, 4])],
        )
    )
    assert status == 1 and answer["error_count"] == 4
    assert [error["statement"] for error in answer["errors"]] == ["x -> t", "a -> p, q, r, axis=0", "y -> d1", None]
    assert "_ -> d2" in answer["errors"][3]["message"]


def test_chain_leads_from_the_users_statement_to_the_failing_one():
    statement = "l.$LAYER_ID.w^T -> d.$LAYER_ID.w, axis=7"
    error = build_error([statement], [whole("l.4.w", [2, 2])])
    assert error["chain"] == [
        "id: l.4.w^T -> d.4.w, axis=7",
        "transpose: l.4.w_transpose_tmp -> d.4.w, axis=7",
        "engine: l.4.w_transpose_tmp -> d.4.w, axis=7",
    ]
    assert build_error([statement], [whole("l.4.w", [2, 2])], enable_traceback=False)["chain"] == []


def test_a_removed_source_leaves_no_hole():
    error = build_error(["a -> d", "a -> _"], [A44], [whole("d", [4, 4])])
    assert error["statement"] == "a -> _" and "'d'" in error["message"]


def test_comments_and_several_statements_in_one_text():
    text = "# a header\n\na -> t  # first\n  t^T -> d\n"
    got = values([text], {"a": arange(2, 3)}, [whole("d", [3, 2])])
    np.testing.assert_array_equal(got[0], arange(2, 3).T)
    assert build_error([text.replace("a ->", "z ->")], [A44])["statement"] == "z -> t  # first"


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text, has", [
    ("", "JSON"), ("{", "JSON"), ("[]", "object"), ("{}", "aoa_config"), ('{"aoa_config": {}}', "source"),
    ('{"aoa_config": {"aoa_statement": []}, "source": []}', "misspelt"),
    ('{"aoa_config": {}, "source": [{"key": "a"}]}', "source[0]"),
    ('{"aoa_config": {}, "source": [{"key": 3}]}', "source[0].key"),
    ('{"aoa_config": {"aoa_statements": [1]}, "source": []}', "aoa_statements[0]"),
    ('{"aoa_config": {}, "source": []} x', "end"),
])
def test_bad_requests(text, has):
    done = run("aoa", "resolve", "-", stdin=text, check=1)
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "INVALID_ARGUMENT" and has in error["message"] and error["statement"] is None


@pytest.mark.parametrize(
    "shape, offset", [([-1, 2], [0, 0]), ([2**62, 2**62], [0, 0]), ([2], [0, 0]), ([1] * 40, [0] * 40)]
)
def test_hostile_shapes(shape, offset):
    source = [desc(["a", shape, shape, offset, None])]
    status, answer = resolve(request({"aoa_statements": []}, source))
    assert status == 1 and "a" in answer["error"]["message"]


def test_hostile_queries_are_refused():
    for offset, shape in (([-1], [2]), ([2**63 - 1], [2**63 - 1]), ([0], [-1])):
        target = desc(["a", shape, [4], offset, None])
        status, answer = resolve(request({"aoa_statements": []}, [whole("a", [4], None)], None, [target]))
        assert status == 0 and answer["answers"][0]["error"]["code"] == "OUT_OF_RANGE"


def test_table_for_people(tmp_path):
    path = tmp_path / "request.json"
    body = request(
        {"aoa_statements": [f"l.{n}.w^T -> m.{n}.w" for n in range(3)] + ["x -> _", "_ -> n", "s -> t"]},
        [whole(f"l.{n}.w", [2, 3]) for n in range(3)] + [whole(k, [2]) for k in "xyzs"],
        [whole(f"m.{n}.w", [3, 2]) for n in range(3)] + [whole("n", [2]), whole("y", [2]), whole("t", [3], "float16")],
    )
    path.write_text(json.dumps(body))
    table = run("aoa", "--format=table", "resolve", str(path), check=0).stdout
    assert (
        "5 matched (1 unchanged), 0 missing, 1 unexpected, 1 of another shape, 1 of another dtype, 1 added, 1 removed"
        in table
    )
    assert "m.*.w" in table and "[1, 0]" in table and "wanted (3,), mapped (2,)" in table
    body["aoa_config"]["aoa_statements"].append("nope -> t")
    path.write_text(json.dumps(body))
    done = run("aoa", "--format=table", "resolve", str(path), check=1)
    assert done.stdout == "" and "error: MAPPING_UNKNOWN_NAME:" in done.stderr and "nope -> t" in done.stderr


def test_missing_file_is_an_error_in_json():
    done = run("aoa", "resolve", "/nonexistent/request.json", check=1)
    assert json.loads(done.stdout)["error"]["reason"] == "INPUT_UNREADABLE"

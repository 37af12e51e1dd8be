
# Minutes of live comparisons with Hugging Face's trainer and tiktoken: the slow tier (docs/corpus_bpe.md). The C++ tests
# beside corpus/bpe always run.
if not __import__("os").environ.get("CAIRN_SLOW_TESTS"):
    collect_ignore = ["test_bpe_encode.py", "test_bpe_train.py"]

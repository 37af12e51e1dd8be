#include "cli/corpus/pretokenizer_flag.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/pretokenizer.h"

namespace cairn::cli {

absl::StatusOr<corpus::BpeLoadOptions> LoadOptionsFor(const std::vector<std::string>& tokenizers,
                                                      const std::string& pretokenizer) {
  corpus::BpeLoadOptions options;
  if (pretokenizer.empty()) return options;
  options.pretokenizer = pretokenizer;
  if (const auto rule = corpus::Pretokenizer::NamedOrPattern(pretokenizer); !rule.ok()) {
    return Annotate(rule.status(), "--pretokenizer");
  }
  for (const std::string& tokenizer : tokenizers) {
    // A SentencePiece model may stand alone in a directory, where no other file is found.
    const absl::StatusOr<std::string> file = corpus::FindTokenizerFile(tokenizer);
    const std::filesystem::path name(file.value_or(tokenizer));
    if (name.extension() == ".tiktoken" || name.filename() == "vocab.json") return options;
  }
  return MakeError(Reason::kBadRequest,
                   absl::StrCat("--pretokenizer has no effect on ", absl::StrJoin(tokenizers, ", "),
                                ": it is for a *.tiktoken or a vocab.json, which do not say how text is cut"),
                   {{"next", "Leave --pretokenizer out."}});
}

}  // namespace cairn::cli

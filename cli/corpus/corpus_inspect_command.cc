#include "cli/corpus/corpus_inspect_command.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/base/terminal.h"
#include "cli/corpus/corpus_error.h"
#include "cli/corpus/input_files.h"
#include "common/process/quantity.h"
#include "common/status/status.h"
#include "corpus/indexed/indexed_reader.h"

namespace cairn::cli {
namespace {

nlohmann::ordered_json Describe(const corpus::IndexedReader& reader) {
  return {{"prefix", reader.prefix()},
          {"version", corpus::kIndexVersion},
          {"dtype", std::string(corpus::IndexedDtypeName(reader.header().dtype))},
          {"documents", reader.documents()},
          {"sequences", reader.header().sequences},
          {"tokens", reader.tokens()},
          {"bin_bytes", reader.bin_bytes()},
          {"multimodal", reader.multimodal()}};
}

void Print(const CommandContext& context, const nlohmann::ordered_json& json) {
  if (context.json()) {
    absl::PrintF("%s\n", JsonText(json));
    return;
  }
  for (const auto& [key, value] : json.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    absl::PrintF("%-18s %s%s\n", key, ForTerminal(text),
                 key == "bin_bytes" ? absl::StrCat(" (", FormatSize(value.get<int64_t>()), ")") : "");
  }
}

absl::StatusOr<nlohmann::ordered_json> Inspect(const std::string& prefix) {
  CAIRN_ASSIGN_OR_RETURN(const auto reader, corpus::IndexedReader::Open(prefix));
  return Describe(*reader);
}

absl::StatusOr<nlohmann::ordered_json> Verify(const std::string& prefix) {
  CAIRN_ASSIGN_OR_RETURN(const auto reader, corpus::IndexedReader::Open(prefix));
  CAIRN_ASSIGN_OR_RETURN(const corpus::IndexedStatistics statistics, corpus::VerifyIndexed(*reader, true));
  nlohmann::ordered_json json = Describe(*reader);
  json["empty_documents"] = statistics.empty_documents;
  json["empty_sequences"] = statistics.empty_sequences;
  json["shortest_sequence"] = statistics.shortest_sequence;
  json["longest_sequence"] = statistics.longest_sequence;
  json["state"] = "sound";
  return json;
}

void AddOne(Command corpus, CommandContext& context, const std::string& name, const std::string& description,
            absl::StatusOr<nlohmann::ordered_json> (*run)(const std::string&)) {
  auto prefix = std::make_shared<std::string>();
  Command command = corpus.AddCommand(name, description);
  command
      .AddOption("PREFIX", *prefix,
                 "The path of the files PREFIX.bin and PREFIX.idx, or s3://BUCKET/KEY, without their endings")
      .Required();
  command.Footer(absl::StrCat("Example:\n  cairn corpus ", name, " corpus_text_document"));
  command.Action([prefix, run, &context] {
    RunCorpusCommand(context, [&]() -> absl::Status {
      CAIRN_ASSIGN_OR_RETURN(const nlohmann::ordered_json json, run(PrefixOfPair(*prefix)));
      Print(context, json);
      return absl::OkStatus();
    });
  });
}

}  // namespace

void AddCorpusInspectCommands(Command corpus, CommandContext& context) {
  AddOne(corpus, context, "inspect",
         "Shows the dtype and the counts of a .bin/.idx pair. It reads the header, not the tokens", Inspect);
  AddOne(corpus, context, "verify",
         "Reads both files of a .bin/.idx pair and checks each length, pointer and document index; it fails at the "
         "first wrong one",
         Verify);
}

}  // namespace cairn::cli

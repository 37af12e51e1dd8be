#include "corpus/preprocess/hf_framing.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/input_path.h"
#include "corpus/tokenizer/tokenizer_path.h"

namespace cairn::corpus {
namespace {

using Json = nlohmann::json;

class FramingReader {
 public:
  FramingReader(std::string_view name, const Tokenizer& tokenizer) : name_(name), tokenizer_(tokenizer) {}

  absl::Status Bad(std::string_view what) const {
    return MakeError(Reason::kBadTokenizer, absl::StrCat(name_, ": ", std::string(what)), {{"file", name_}});
  }

  absl::StatusOr<Json> Parse(const std::string& text, std::string_view file) const {
    if (text.empty()) return Json::object();
    Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return Bad(absl::StrCat(std::string(file), " is not a JSON object"));
    return json;
  }

  absl::Status Add(const Json& processor, Framing& framing) const {
    if (processor.is_null()) return absl::OkStatus();
    const std::string type = processor.is_object() ? processor.value("type", Json()).dump() : "";
    if (type == "\"ByteLevel\"") return absl::OkStatus();
    if (type == "\"Sequence\"") {
      const Json parts = processor.value("processors", Json());
      if (!parts.is_array()) return Bad("a Sequence post-processor has no processors");
      for (const Json& part : parts) {
        if (part.is_object() && part.value("type", Json()) == "Sequence") return Bad("nested Sequence post-processors");
        CAIRN_RETURN_IF_ERROR(Add(part, framing));
      }
      return absl::OkStatus();
    }
    std::vector<uint32_t> before, after;
    if (type == "\"BertProcessing\"" || type == "\"RobertaProcessing\"") {
      CAIRN_ASSIGN_OR_RETURN(const uint32_t cls, PairId(processor, "cls"));
      CAIRN_ASSIGN_OR_RETURN(const uint32_t sep, PairId(processor, "sep"));
      before.push_back(cls);
      after.push_back(sep);
    } else if (type == "\"TemplateProcessing\"") {
      CAIRN_RETURN_IF_ERROR(AddTemplate(processor, before, after));
    } else {
      return MakeError(Reason::kUnsupported, absl::StrCat(name_, ": post-processor ", type));
    }
    framing.before.insert(framing.before.begin(), before.begin(), before.end());
    framing.after.insert(framing.after.end(), after.begin(), after.end());
    return absl::OkStatus();
  }

  // Returns a special token of the configuration, "text" or {"content": "text"}; nothing if it has none.
  absl::StatusOr<std::optional<uint32_t>> TokenId(const Json& config, const char* key) const {
    Json value = config.value(key, Json());
    if (value.is_object()) value = value.value("content", Json());
    if (value.is_null()) return std::optional<uint32_t>();
    if (!value.is_string()) return Bad(absl::StrCat(key, " is not a text"));
    const std::optional<uint32_t> id = tokenizer_.IdOf(value.get_ref<const std::string&>());
    if (!id) return Bad(absl::StrCat(key, " is ", value.dump(), ", which the vocabulary does not have"));
    return id;
  }

 private:
  static bool IsId(const Json& json) { return json.is_number_unsigned() && json.get<uint64_t>() <= 0x7FFFFFFF; }

  absl::StatusOr<uint32_t> PairId(const Json& processor, const char* key) const {
    const Json pair = processor.value(key, Json());
    if (!pair.is_array() || pair.size() != 2 || !IsId(pair[1])) {
      return Bad(absl::StrCat("the post-processor has no ", key, " token"));
    }
    return pair[1].get<uint32_t>();
  }

  absl::Status AddTemplate(const Json& processor, std::vector<uint32_t>& before, std::vector<uint32_t>& after) const {
    const Json single = processor.value("single", Json()), specials = processor.value("special_tokens", Json());
    if (!single.is_array()) return Bad("the TemplateProcessing post-processor has no template");
    bool seen = false;
    for (const Json& part : single) {
      if (part.is_object() && part.contains("Sequence")) {
        if (seen) return Bad("the template of the post-processor repeats the text");
        seen = true;
        continue;
      }
      const Json token = part.is_object() ? part.value("SpecialToken", Json()) : Json();
      const Json id = token.is_object() ? token.value("id", Json()) : Json();
      const Json known =
          id.is_string() && specials.is_object() ? specials.value(id.get_ref<const std::string&>(), Json()) : Json();
      const Json ids = known.is_object() ? known.value("ids", Json()) : Json();
      if (!ids.is_array()) return Bad("the template of the post-processor names a token without ids");
      for (const Json& value : ids) {
        if (!IsId(value)) return Bad("the template of the post-processor has an id that is none");
        (seen ? after : before).push_back(value.get<uint32_t>());
      }
    }
    if (!seen) return Bad("the template of the post-processor has no place for the text");
    return absl::OkStatus();
  }

  std::string name_;
  const Tokenizer& tokenizer_;
};

}  // namespace

absl::StatusOr<HfFiles> ReadHfFiles(const std::string& path) {
  namespace fs = std::filesystem;
  CAIRN_RETURN_IF_ERROR(CheckIsNoHubName(path));
  const fs::path file = IsInputDirectory(path) ? fs::path(path) / "tokenizer.json" : fs::path(path);
  HfFiles files;
  CAIRN_ASSIGN_OR_RETURN(files.tokenizer_json, ReadInput(file.string()));
  for (const auto& [name, text] : {std::pair("tokenizer_config.json", &files.tokenizer_config),
                                   std::pair("special_tokens_map.json", &files.special_tokens_map)}) {
    const fs::path beside = file.parent_path() / name;
    if (!InputStands(beside.string())) continue;
    CAIRN_ASSIGN_OR_RETURN(*text, ReadInput(beside.string()));
  }
  return files;
}

absl::StatusOr<Framing> HfFraming(const HfFiles& files, std::string_view name, const Tokenizer& tokenizer) {
  const FramingReader reader(name, tokenizer);
  CAIRN_ASSIGN_OR_RETURN(const Json tokenizer_json, reader.Parse(files.tokenizer_json, "tokenizer.json"));
  CAIRN_ASSIGN_OR_RETURN(Json config, reader.Parse(files.tokenizer_config, "tokenizer_config.json"));
  CAIRN_ASSIGN_OR_RETURN(const Json map, reader.Parse(files.special_tokens_map, "special_tokens_map.json"));
  for (const char* key : {"bos_token", "eos_token", "sep_token"}) {
    if (!config.contains(key) && map.contains(key)) config[key] = map[key];
  }
  CAIRN_ASSIGN_OR_RETURN(const std::optional<uint32_t> eos, reader.TokenId(config, "eos_token"));
  CAIRN_ASSIGN_OR_RETURN(const std::optional<uint32_t> sep, reader.TokenId(config, "sep_token"));
  Framing framing;
  framing.end_of_document = eos ? eos : sep;
  // The configuration's add_bos_token and add_eos_token have no effect here: if there is a tokenizer.json, transformers
  // (5) removes them (PreTrainedTokenizerBase._from_pretrained), because its post-processor has them already.
  CAIRN_RETURN_IF_ERROR(reader.Add(tokenizer_json.value("post_processor", Json()), framing));
  return framing;
}

}  // namespace cairn::corpus

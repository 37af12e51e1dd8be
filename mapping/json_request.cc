// Reads a request in JSON: a mapping, and the tensors that it is for.

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/format/json_syntax.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "mapping/json.h"

namespace cairn::aoa {

struct Request::Buffers {
  simdjson::padded_string text;
  simdjson::ondemand::parser parser;
  simdjson::ondemand::document document;
};

namespace {

namespace ondemand = simdjson::ondemand;
using simdjson::error_code;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

absl::Status Bad(std::string_view place, std::string_view what) {
  return MakeError(Reason::kBadRequest, absl::StrCat(View(place), ": ", View(what)), {{"place", std::string(place)}});
}

absl::Status Bad(std::string_view place, error_code error, std::string_view wanted) {
  if (error == simdjson::INCORRECT_TYPE || error == simdjson::NUMBER_ERROR || error == simdjson::NUMBER_OUT_OF_RANGE) {
    return Bad(place, absl::StrCat("must be ", View(wanted)));
  }
  return Bad(place, absl::StrCat("is no valid JSON: ", simdjson::error_message(error)));
}

absl::Status ReadString(ondemand::value value, std::string_view place, std::string_view& text) {
  const error_code error = value.get_string().get(text);
  return error ? Bad(place, error, "a string") : absl::OkStatus();
}

absl::Status ReadBool(ondemand::value value, std::string_view place, bool& flag) {
  const error_code error = value.get_bool().get(flag);
  return error ? Bad(place, error, "true or false") : absl::OkStatus();
}

absl::Status ReadShape(ondemand::value value, std::string_view place, std::string_view member, Shape& shape) {
  const auto fail = [&](error_code error) {
    return Bad(absl::StrCat(View(place), ".", View(member)), error, "a list of integers below 2^63");
  };
  ondemand::array array;
  if (error_code error = value.get_array().get(array)) return fail(error);
  shape.clear();
  for (auto element : array) {
    int64_t number = 0;
    if (error_code error = element.get_int64().get(number)) return fail(error);
    if (shape.size() > kMaxDims) return Bad(place, absl::StrCat("has more than ", kMaxDims, " dimensions"));
    shape.push_back(number);
  }
  return absl::OkStatus();
}

template <typename Member>
absl::Status ReadObject(ondemand::value value, std::string_view place, Member&& member) {
  ondemand::object object;
  if (error_code error = value.get_object().get(object)) return Bad(place, error, "an object");
  for (auto field : object) {
    std::string_view name;
    if (error_code error = field.unescaped_key().get(name)) return Bad(place, error, "an object");
    ondemand::value element;
    if (error_code error = field.value().get(element)) return Bad(place, error, "an object");
    CAIRN_RETURN_IF_ERROR(member(name, element));
  }
  return absl::OkStatus();
}

template <typename Element>
absl::Status ReadArray(ondemand::value value, std::string_view place, Element&& element) {
  ondemand::array array;
  if (error_code error = value.get_array().get(array)) return Bad(place, error, "a list");
  size_t index = 0;
  for (auto item : array) {
    ondemand::value inner;
    if (error_code error = item.get(inner)) return Bad(place, error, "a list");
    CAIRN_RETURN_IF_ERROR(element(index++, inner));
  }
  return absl::OkStatus();
}

bool IsNull(ondemand::value value) {
  bool null = false;
  return !value.is_null().get(null) && null;
}

absl::Status ReadDesc(ondemand::value value, std::string_view list, size_t index, ShardDesc& desc) {
  // The place is built only for errors, because there are many descriptions.
  const auto place = [&] { return absl::StrCat(View(list), "[", index, "]"); };
  enum Seen { kKey = 1, kLocal = 2, kGlobal = 4, kOffset = 8 };
  int seen = 0;
  ondemand::object object;
  if (error_code error = value.get_object().get(object)) return Bad(place(), error, "an object");
  for (auto field : object) {
    std::string_view name;
    ondemand::value element;
    if (error_code error = field.unescaped_key().get(name)) return Bad(place(), error, "an object");
    if (error_code error = field.value().get(element)) return Bad(place(), error, "an object");
    if (name == "key") {
      if (element.get_string().get(desc.key)) return Bad(place() + ".key", "must be a string");
      seen |= kKey;
    } else if (name == "local_shape") {
      CAIRN_RETURN_IF_ERROR(ReadShape(element, list, name, desc.local_shape));
      seen |= kLocal;
    } else if (name == "global_shape") {
      CAIRN_RETURN_IF_ERROR(ReadShape(element, list, name, desc.global_shape));
      seen |= kGlobal;
    } else if (name == "global_offset") {
      CAIRN_RETURN_IF_ERROR(ReadShape(element, list, name, desc.global_offset));
      seen |= kOffset;
    } else if (name == "dtype") {
      if (IsNull(element)) continue;
      std::string_view dtype;
      if (element.get_string().get(dtype)) return Bad(place() + ".dtype", "must be a dtype's name or null");
      const auto known = DTypeFromName(dtype);
      if (!known.has_value()) {
        return MakeError(Reason::kBadDtype, absl::StrCat(place(), ".dtype: '", View(dtype), "' of tensor '",
                                                         View(desc.key), "' is no dtype; write float32, bfloat16 ..."));
      }
      desc.dtype = *known;
    }
  }
  if (seen != (kKey | kLocal | kGlobal | kOffset)) {
    return Bad(place(), "must have key, local_shape, global_shape and global_offset");
  }
  return absl::OkStatus();
}

absl::Status ReadDescs(ondemand::value value, std::string_view place, std::vector<ShardDesc>& descs) {
  return ReadArray(value, place, [&](size_t index, ondemand::value element) {
    return ReadDesc(element, place, index, descs.emplace_back());
  });
}

absl::Status ReadStatements(ondemand::value value, std::string_view place, std::vector<std::string>& statements) {
  return ReadArray(value, place, [&](size_t index, ondemand::value element) {
    std::string_view text;
    CAIRN_RETURN_IF_ERROR(ReadString(element, absl::StrCat(View(place), "[", index, "]"), text));
    statements.emplace_back(text);
    return absl::OkStatus();
  });
}

absl::Status ReadConfig(ondemand::value value, std::string_view place, Config& config) {
  return ReadObject(value, place, [&](std::string_view name, ondemand::value element) -> absl::Status {
    const std::string inner = absl::StrCat(View(place), ".", View(name));
    if (name == "aoa_statements") return ReadStatements(element, inner, config.statements);
    if (name == "aoa_config_reverse") return ReadBool(element, inner, config.reverse);
    if (name == "enable_traceback") return ReadBool(element, inner, config.traceback);
    if (name == "legacy_qkv") return ReadBool(element, inner, config.legacy_qkv);
    if (name == "allow_missing") return ReadBool(element, inner, config.allow_missing);
    if (name.starts_with("aoa_")) return Bad(inner, "is no member of aoa_config; is it misspelt?");
    return absl::OkStatus();
  });
}

absl::StatusOr<Request> ReadRequest(Request::Buffers& buffers) {
  if (error_code error = buffers.parser.iterate(buffers.text).get(buffers.document)) {
    return Bad("request", error, "an object");
  }
  Request request;
  ondemand::value root;
  if (error_code error = buffers.document.get_value().get(root)) return Bad("request", error, "an object");
  bool has_config = false, has_source = false;
  CAIRN_RETURN_IF_ERROR(ReadObject(root, "request", [&](std::string_view name, ondemand::value value) -> absl::Status {
    if (name == "aoa_config") {
      has_config = true;
      return ReadConfig(value, name, request.config);
    }
    if (name == "source") {
      has_source = true;
      return ReadDescs(value, name, request.source);
    }
    if (name == "destination") {
      if (IsNull(value)) return absl::OkStatus();
      return ReadDescs(value, name, request.destination.emplace());
    }
    if (name == "queries") {
      if (IsNull(value)) return absl::OkStatus();
      return ReadDescs(value, name, request.queries);
    }
    return absl::OkStatus();
  }));
  if (!has_config) return Bad("request", "must have aoa_config");
  if (!has_source) return Bad("request", "must have source");
  const char* after = nullptr;
  if (!buffers.document.current_location().get(after)) return Bad("request", "goes on after its end");
  return request;
}

absl::StatusOr<Config> ReadWholeConfig(std::string_view text) {
  simdjson::ondemand::parser parser;
  const simdjson::padded_string padded(text.data(), text.size());
  simdjson::ondemand::document document;
  if (error_code error = parser.iterate(padded).get(document)) return Bad("mapping", error, "an object");
  simdjson::ondemand::value root;
  if (error_code error = document.get_value().get(root)) return Bad("mapping", error, "an object or a list");
  Config config;
  simdjson::ondemand::json_type type;
  if (error_code error = root.type().get(type)) return Bad("mapping", error, "an object or a list");
  if (type == simdjson::ondemand::json_type::array) {
    CAIRN_RETURN_IF_ERROR(ReadStatements(root, "mapping", config.statements));
  } else {
    CAIRN_RETURN_IF_ERROR(ReadConfig(root, "mapping", config));
  }
  return config;
}

// The line of a fault in the syntax, which the error of a reader lacks.
absl::Status WithLine(std::string_view place, std::string_view text, const absl::Status& error) {
  const std::optional<std::string> syntax = JsonSyntaxError(text);
  if (!syntax.has_value()) return error;
  // A user may have passed a file of statements instead of a request.
  const char* form = place == "request" ? ". A request is one JSON object: docs/mapping.md has one to copy" : "";
  return Bad(place, absl::StrCat("is no valid JSON: ", *syntax, form));
}

}  // namespace

absl::StatusOr<Request> ParseRequest(std::string text) {
  auto buffers = std::make_shared<Request::Buffers>();
  buffers->text = simdjson::padded_string(text);
  std::string().swap(text);
  absl::StatusOr<Request> request = ReadRequest(*buffers);
  if (!request.ok()) return WithLine("request", buffers->text, request.status());
  request->buffers = std::move(buffers);
  return request;
}

absl::StatusOr<Config> ParseConfig(std::string_view text) {
  absl::StatusOr<Config> config = ReadWholeConfig(text);
  if (!config.ok()) return WithLine("mapping", text, config.status());
  return config;
}

}  // namespace cairn::aoa

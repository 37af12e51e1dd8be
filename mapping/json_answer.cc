// Writes an answer in JSON: what a mapping makes of the tensors.

#include <charconv>
#include <cstring>

#include "common/status/reason.h"
#include "mapping/json.h"

namespace cairn::aoa {
namespace {

// Returns the length of the valid character that `text` begins with; 0 if there is none.
size_t Utf8Bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t size = byte(0) >= 0xf0 && byte(0) < 0xf5 ? 4 : byte(0) >= 0xe0 ? 3 : byte(0) >= 0xc2 ? 2 : 0;
  if (byte(0) >= 0xf5 || size == 0 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // These bytes would be overlong forms, surrogates, or characters beyond U+10FFFF.
  if ((byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xed && byte(1) > 0x9f) ||
      (byte(0) == 0xf0 && byte(1) < 0x90) || (byte(0) == 0xf4 && byte(1) > 0x8f)) {
    return 0;
  }
  return size;
}

// Appends text in the form that it has inside a JSON string. Invalid UTF-8 becomes U+FFFD, so that the answer is always
// JSON.
void AppendEscaped(std::string_view text, std::string& out) {
  size_t plain = 0;
  for (size_t at = 0; at < text.size();) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') {
      ++at;
      continue;
    }
    out.append(text.substr(plain, at - plain));
    const size_t bytes = c < 0x80 ? 1 : Utf8Bytes(text.substr(at));
    if (c >= 0x80) {
      out.append(bytes > 0 ? text.substr(at, bytes) : "\xef\xbf\xbd");
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += text[at];
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else {
      constexpr char kHex[] = "0123456789abcdef";
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
    }
    at += bytes > 0 ? bytes : 1;
    plain = at;
  }
  out.append(text.substr(plain));
}

// Writes JSON text in large pieces.
class Writer {
 public:
  explicit Writer(Sink sink) : sink_(sink) { buffer_.reserve(kPiece + 4096); }
  ~Writer() { Flush(); }

  void Raw(std::string_view text) {
    buffer_.append(text);
    if (buffer_.size() >= kPiece) Flush();
  }

  void Number(int64_t number) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
    Raw({digits, static_cast<size_t>(end - digits)});
  }

  void String(std::string_view text) {
    buffer_ += '"';
    AppendEscaped(text, buffer_);
    Raw("\"");
  }

  void Escaped(std::string_view text) {
    AppendEscaped(text, buffer_);
    Raw({});
  }

  void List(std::span<const int64_t> numbers) {
    Raw("[");
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (i > 0) Raw(", ");
      Number(numbers[i]);
    }
    Raw("]");
  }

 private:
  static constexpr size_t kPiece = 1 << 18;

  void Flush() {
    if (!buffer_.empty()) sink_(buffer_);
    buffer_.clear();
  }

  Sink sink_;
  std::string buffer_;
};

void WriteDesc(Writer& out, std::string_view key, std::string_view suffix, std::span<const int64_t> local,
               std::span<const int64_t> global, std::span<const int64_t> offset, DType dtype) {
  out.Raw("{\"key\": \"");
  out.Escaped(key);
  out.Escaped(suffix);
  out.Raw("\", \"local_shape\": ");
  out.List(local);
  out.Raw(", \"global_shape\": ");
  out.List(global);
  out.Raw(", \"global_offset\": ");
  out.List(offset);
  out.Raw(", \"dtype\": ");
  if (dtype == DType::kUnspecified) {
    out.Raw("null}");
  } else {
    out.Raw("\"");
    out.Raw(NameOf(dtype));
    out.Raw("\"}");
  }
}

void WriteStatus(Writer& out, absl::StatusCode code, std::string_view reason, std::string_view message) {
  out.Raw("{\"code\": ");
  out.String(absl::StatusCodeToString(code));
  out.Raw(", \"reason\": ");
  out.String(reason);
  out.Raw(", \"message\": ");
  out.String(message);
}

std::string_view ReasonName(const absl::Status& status) {
  const auto reason = ReasonOf(status);
  return reason.has_value() ? InfoOf(*reason).name : "UNKNOWN";
}

// Appends the statement in the form that it has inside a JSON string. Names, numbers and punctuation need no escapes.
void AppendJsonText(const Program& program, LineId line, std::string& text) {
  for (const Token& token : program.tokens(line)) {
    if (!token.is_string()) {
      AppendToken(token, program.symbols(), text);
      continue;
    }
    std::string string;
    AppendToken(token, program.symbols(), string);
    AppendEscaped(string, text);
  }
}

void WriteStages(Writer& out, const Program& program) {
  out.Raw("{\"stages\": [");
  // Most macros change nothing in most programs. Then the text of the previous stage is written again.
  std::string statements;
  const std::vector<LineId>* written = nullptr;
  for (size_t i = 0; i < kMacroStages.size(); ++i) {
    out.Raw(i == 0 ? "\n  {\"macro\": " : ",\n  {\"macro\": ");
    out.String(NameOf(kMacroStages[i]));
    out.Raw(", \"statements\": [");
    const std::vector<LineId>& lines = program.After(kMacroStages[i]);
    if (written == nullptr || *written != lines) {
      statements.clear();
      for (LineId line : lines) {
        statements += statements.empty() ? "\"" : ", \"";
        AppendJsonText(program, line, statements);
        statements += '"';
      }
      written = &lines;
    }
    out.Raw(statements);
    out.Raw("]}");
  }
  out.Raw("],\n");
}

void WriteError(Writer& out, const MappingError& error) {
  WriteStatus(out, InfoOf(error.reason).code, InfoOf(error.reason).name, error.message);
  out.Raw(", \"statement\": ");
  if (error.statement.has_value()) {
    out.String(*error.statement);
  } else {
    out.Raw("null");
  }
  out.Raw(", \"chain\": [");
  for (size_t i = 0; i < error.chain.size(); ++i) {
    if (i > 0) out.Raw(", ");
    out.String(error.chain[i]);
  }
  out.Raw("]}");
}

}  // namespace

void WriteAnswer(const MappedState& mapped, std::span<const ShardDesc> queries, Sink sink) {
  Writer out(sink);
  WriteStages(out, mapped.program());
  out.Raw("\"outputs\": [");
  bool first = true;
  for (const Output& output : mapped.outputs()) {
    if (!first) out.Raw(", ");
    out.String(mapped.Text(output.name));
    first = false;
  }
  out.Raw("],\n\"answers\": [");
  first = true;
  std::vector<Entry> entries;
  for (const ShardDesc& query : queries) {
    out.Raw(first ? "\n  {\"target\": " : ",\n  {\"target\": ");
    first = false;
    WriteDesc(out, query.key, {}, query.local_shape, query.global_shape, query.global_offset, query.dtype);
    entries.clear();
    if (absl::Status status = mapped.Resolve(query, entries); !status.ok()) {
      out.Raw(", \"error\": ");
      WriteStatus(out, status.code(), ReasonName(status), {status.message().data(), status.message().size()});
      out.Raw("}}");
      continue;
    }
    out.Raw(", \"entries\": [");
    for (size_t i = 0; i < entries.size(); ++i) {
      const Entry& entry = entries[i];
      out.Raw(i == 0 ? "{\"target\": " : ", {\"target\": ");
      WriteDesc(out, query.key, {}, entry.target.shape, query.global_shape, entry.target.offset, query.dtype);
      out.Raw(", \"source\": ");
      WriteDesc(out, entry.source_key, entry.source_suffix, entry.source.shape, entry.source_shape, entry.source.offset,
                entry.source_dtype);
      out.Raw(", \"postprocess\": ");
      const auto steps = mapped.postprocess(entry);
      for (size_t k = 0; k < steps.size(); ++k) {
        out.Raw(k == 0 ? "[" : ", ");
        out.String(steps[k]);
      }
      out.Raw(steps.empty() ? "null}" : "]}");
    }
    out.Raw("]}");
  }
  out.Raw("]}\n");
}

void WriteFailure(const absl::Status& status, std::span<const MappingError> errors, size_t total, Sink sink) {
  Writer out(sink);
  out.Raw("{\"error\": ");
  if (errors.empty()) {
    WriteStatus(out, status.code(), ReasonName(status), {status.message().data(), status.message().size()});
    out.Raw(", \"statement\": null, \"chain\": []}");
  } else {
    WriteError(out, errors.front());
  }
  out.Raw(",\n\"errors\": [");
  for (size_t i = 0; i < errors.size(); ++i) {
    out.Raw(i == 0 ? "\n  " : ",\n  ");
    WriteError(out, errors[i]);
  }
  out.Raw("],\n\"error_count\": ");
  out.Number(static_cast<int64_t>(errors.empty() ? 1 : total));
  out.Raw("}\n");
}

}  // namespace cairn::aoa

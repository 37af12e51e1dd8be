#include "corpus/bpe/count_record.h"

#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/object_stores.h"

namespace cairn::corpus {
namespace {

constexpr int kVersion = 1;

absl::Status Damaged(const std::string& path, const std::string& what) {
  return MakeError(Reason::kChecksumMismatch,
                   absl::StrCat(path, ": the record of the count is damaged (", what, "); remove it to begin anew"),
                   {{"file", path}});
}

}  // namespace

std::string CountRecordPath(const std::string& directory) { return directory + "/count.json"; }

std::string CountFingerprint(const std::vector<std::string>& inputs, const std::string& settings) {
  Digester digester;
  digester.Add("cairn bpe count").Add(settings).Add(inputs.size());
  for (const std::string& input : inputs) {
    if (ObjectStores* const stores = StoresOf(input)) {
      const auto object = stores->Open(input);  // a missing one is found when it is opened again
      digester.Add(input).Add(object.ok() ? (*object)->identity() : "");
      continue;
    }
    struct stat info = {};
    stat(input.c_str(), &info);  // a missing file is found when it is opened
    digester.Add(input)
        .Add(static_cast<uint64_t>(info.st_size))
        .Add(static_cast<uint64_t>(info.st_mtim.tv_sec))
        .Add(static_cast<uint64_t>(info.st_mtim.tv_nsec));
  }
  return DigestHex(digester.Finish());
}

absl::Status SaveCountRecord(const std::string& directory, const CountRecord& record) {
  nlohmann::json runs = nlohmann::json::array();
  for (const WordRun& run : record.runs) {
    runs.push_back({{"file", run.path.substr(run.path.rfind('/') + 1)}, {"bytes", run.bytes}, {"crc32c", run.crc32c}});
  }
  const BlockReader::Position& position = record.position;
  const nlohmann::json json = {
      {"version", kVersion},
      {"fingerprint", record.fingerprint},
      {"runs", runs},
      {"input", position.input},
      {"offset", position.offset},
      {"line", position.line},
      {"unread", absl::Base64Escape(position.unread)},
      {"incomplete", absl::Base64Escape(position.incomplete)},
  };
  const std::string body = json.dump();
  return WriteFileAtomically(CountRecordPath(directory), absl::StrCat(DigestHex(Digest(body)), "\n", body, "\n"));
}

absl::StatusOr<std::optional<CountRecord>> LoadCountRecord(const std::string& directory) {
  const std::string path = CountRecordPath(directory);
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream content;
  content << file.rdbuf();
  const std::string text = content.str();
  const size_t newline = text.find('\n');
  if (newline == std::string::npos || text.back() != '\n') return Damaged(path, "it is cut off");
  const std::string body = text.substr(newline + 1, text.size() - newline - 2);
  if (DigestHex(Digest(body)) != text.substr(0, newline)) return Damaged(path, "its digest does not fit");
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, false);
  if (!json.is_object() || json.value("version", 0) != kVersion) return Damaged(path, "another version wrote it");
  // SaveCountRecord wrote this, so if the digest is right the fields are too.
  CountRecord record;
  record.fingerprint = json["fingerprint"];
  for (const auto& run : json["runs"]) {
    record.runs.push_back({absl::StrCat(directory, "/", run["file"].get<std::string>()), run["bytes"], run["crc32c"]});
  }
  BlockReader::Position& position = record.position;
  position.input = json["input"];
  position.offset = json["offset"];
  position.line = json["line"];
  if (!absl::Base64Unescape(json["unread"].get<std::string>(), &position.unread) ||
      !absl::Base64Unescape(json["incomplete"].get<std::string>(), &position.incomplete)) {
    return Damaged(path, "it is not base64");
  }
  return record;
}

}  // namespace cairn::corpus

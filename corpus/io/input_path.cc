#include "corpus/io/input_path.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/object_stores.h"

namespace cairn::corpus {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostBytes = uint64_t{1} << 30;

absl::StatusOr<std::string> ReadObject(ObjectStores& stores, const std::string& name) {
  CAIRN_ASSIGN_OR_RETURN(const auto reader, stores.Open(name));
  if (reader->bytes() > kMostBytes) {
    return MakeError(Reason::kInputUnreadable, absl::StrCat(name, ": larger than 1 GiB"), {{"file", name}});
  }
  return WithMemory(absl::StrCat("to read ", name), [&]() -> absl::StatusOr<std::string> {
    std::string bytes(reader->bytes(), '\0');
    CAIRN_RETURN_IF_ERROR(reader->Read(0, bytes.size(), bytes.data()));
    return bytes;
  });
}

}  // namespace

bool IsInputDirectory(const std::string& path) {
  if (ObjectStores* const stores = StoresOf(path)) {
    const auto entries = stores->List(path);
    return entries.ok() && !entries->empty();
  }
  std::error_code error;
  return fs::is_directory(path, error);
}

bool InputStands(const std::string& path) {
  if (ObjectStores* const stores = StoresOf(path)) return stores->Stands(path);
  std::error_code error;
  return fs::exists(path, error);
}

absl::StatusOr<std::vector<std::string>> InputsIn(const std::string& directory) {
  std::vector<std::string> paths;
  if (ObjectStores* const stores = StoresOf(directory)) {
    CAIRN_ASSIGN_OR_RETURN(const auto entries, stores->List(directory));
    const std::string prefix = directory.ends_with('/') ? directory : absl::StrCat(directory, "/");
    for (const ObjectStores::Entry& entry : entries) paths.push_back(absl::StrCat(prefix, entry.name));
    return paths;
  }
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) paths.push_back(entry->path().string());
  if (error) return InputError("list", directory, error.value());
  return paths;
}

absl::StatusOr<std::string> ReadInput(const std::string& path) {
  if (ObjectStores* const stores = StoresOf(path)) return ReadObject(*stores, path);
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || (file.peek() != std::ifstream::traits_type::eof() && !(text << file.rdbuf())) || file.bad()) {
    return MakeError(Reason::kInputUnreadable, absl::StrCat(path, ": cannot be read"), {{"file", path}});
  }
  return std::move(text).str();
}

}  // namespace cairn::corpus

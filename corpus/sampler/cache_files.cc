#include "corpus/sampler/cache_files.h"

#include <fcntl.h>

#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/file/full_transfer.h"
#include "common/file/unique_fd.h"
#include "common/status/status.h"
#include "corpus/io/output_file.h"
#include "corpus/sampler/description.h"

namespace cairn::corpus {
namespace {

constexpr const char* kDescription = "description.txt";

bool HasContent(const std::string& path, std::string_view content) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::string bytes(content.size() + 1, '\0');
  size_t got = 0;
  return fd.valid() && ReadFullyAt(fd.get(), bytes.data(), bytes.size(), 0, got) == 0 &&
         std::string_view(bytes.data(), got) == content;
}

}  // namespace

CacheFiles::CacheFiles(const std::string& directory, const nlohmann::ordered_json& identifiers,
                       const std::string& split)
    : directory_(directory), description_(PythonJson(identifiers)) {
  name_ = absl::StrCat(DescriptionHash(description_), "-", identifiers.at("class").get_ref<const std::string&>(), "-",
                       split);
}

std::string CacheFiles::PathOf(const std::string& suffix) const {
  return (std::filesystem::path(directory_) / absl::StrCat(name_, "-", suffix)).string();
}

bool CacheFiles::AreWhole(const std::map<std::string, NpyHeader>& headers) const {
  for (const auto& [name, header] : headers) {
    if (!HasNpyHeader(PathOf(absl::StrCat(name, ".npy")), header)) return false;
  }
  return HasContent(PathOf(kDescription), description_);
}

absl::StatusOr<NpyFile> CacheFiles::CreateArray(const std::string& name, const NpyHeader& header) const {
  return NpyFile::Create(PathOf(absl::StrCat(name, ".npy")), header);
}

absl::Status CacheFiles::Commit(std::vector<NpyFile> arrays) const {
  const std::string path = PathOf(kDescription);
  CAIRN_ASSIGN_OR_RETURN(const auto description, OutputFile::Create(path, {}));
  CAIRN_RETURN_IF_ERROR(description->Append(description_));
  CAIRN_RETURN_IF_ERROR(description->Finish());
  for (NpyFile& array : arrays) CAIRN_RETURN_IF_ERROR(array.Finish());
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) CAIRN_RETURN_IF_ERROR(RemoveReplaced({{description->path()}}));
  for (NpyFile& array : arrays) CAIRN_RETURN_IF_ERROR(array.Commit());
  return description->Commit();
}

}  // namespace cairn::corpus

#include "corpus/sampler/cache_files.h"

#include <fcntl.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/file/atomic_write.h"
#include "common/file/full_transfer.h"
#include "common/file/unique_fd.h"
#include "common/status/status.h"
#include "corpus/io/hidden_file.h"
#include "corpus/io/output_file.h"
#include "corpus/sampler/description.h"

namespace cairn::corpus {
namespace {

constexpr const char* kDescription = "description.txt";
constexpr const char* kArrayEnding = ".npy";

bool HasContent(const std::string& path, std::string_view content) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::string bytes(content.size() + 1, '\0');
  size_t got = 0;
  return fd.valid() && ReadFullyAt(fd.get(), bytes.data(), bytes.size(), 0, got) == 0 &&
         std::string_view(bytes.data(), got) == content;
}

}  // namespace

absl::StatusOr<CacheDirectory> CacheDirectory::Open(const std::string& path) {
  const std::string any_file = absl::StrCat(path, "/any");
  CAIRN_ASSIGN_OR_RETURN(MadeDirectory made, MadeDirectory::Of(any_file));
  RemoveLeftHidden(any_file, [](std::string_view name) { return name.ends_with(kArrayEnding); });
  return CacheDirectory(path, FreshHiddenToken(), std::move(made));
}

std::string CacheDirectory::PathOf(const std::string& name) const { return absl::StrCat(path_, "/", name); }

std::string CacheDirectory::HiddenPathOf(const std::string& name) const { return HiddenName(PathOf(name), token_); }

absl::Status CacheDirectory::Sync() const { return SyncDirectoryOf(PathOf("any")); }

CacheFiles::CacheFiles(const CacheDirectory& directory, const nlohmann::ordered_json& identifiers,
                       const std::string& split)
    : directory_(directory), description_(PythonJson(identifiers)) {
  name_ = absl::StrCat(DescriptionHash(description_), "-", identifiers.at("class").get_ref<const std::string&>(), "-",
                       split);
}

bool CacheFiles::AreWhole(const std::map<std::string, NpyHeader>& headers) const {
  for (const auto& [name, header] : headers) {
    if (!HasNpyHeader(directory_.PathOf(NameOf(name + kArrayEnding)), header)) return false;
  }
  return HasContent(directory_.PathOf(NameOf(kDescription)), description_);
}

absl::StatusOr<NpyFile> CacheFiles::CreateArray(const std::string& name, const NpyHeader& header) const {
  const std::string file = NameOf(name + kArrayEnding);
  return NpyFile::Create(directory_.PathOf(file), directory_.HiddenPathOf(file), header);
}

absl::Status CacheFiles::Publish(std::vector<NpyFile> arrays) const {
  for (NpyFile& array : arrays) CAIRN_RETURN_IF_ERROR(array.Finish());
  const std::string path = directory_.PathOf(NameOf(kDescription));
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) CAIRN_RETURN_IF_ERROR(RemoveReplaced({{path}}));
  for (NpyFile& array : arrays) CAIRN_RETURN_IF_ERROR(array.Publish());
  const AtomicWriteOptions options = {.replace = true, .durable = AtomicWriteOptions::Durable::kNothing};
  return WriteAtomically(path, description_, options).put.status();
}

}  // namespace cairn::corpus

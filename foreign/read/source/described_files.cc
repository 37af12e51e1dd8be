#include "foreign/read/source/described_files.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/format/stored_item.h"
#include "common/resources/page_size.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "foreign/read/pickle/pickle.h"

namespace cairn {
namespace {

// The memory limit for each byte of a pickle. A document usually takes about 2.
constexpr uint64_t kMemoryPerByte = 6;
constexpr int kReaders = 16;

}  // namespace

void ReleasePages(std::string& text, size_t consumed) {
  const auto data = reinterpret_cast<uintptr_t>(text.data());
  const uintptr_t begin = RoundUpToPages(data), end = RoundDownToPages(data + consumed);
  // The pages of private memory read as zeros afterwards. If the kernel refuses, they stay.
  if (begin < end) madvise(text.data() + (begin - data), end - begin, MADV_DONTNEED);
}

absl::StatusOr<PickleDocument> ReadPickledMetadata(std::string_view bytes, const std::string& what,
                                                   const ReleasePickle& release) {
  PickleLimits limits;
  limits.memory_bytes = std::max<uint64_t>(limits.memory_bytes, kMemoryPerByte * bytes.size());
  return release ? ConsumePickle(bytes, what, limits, release) : ReadPickle(bytes, what, limits);
}

absl::Status BadMetadata(const std::string& what, std::string_view problem, std::string_view tensor) {
  ErrorMetadata metadata = {{"file", what}};
  if (!tensor.empty()) metadata.emplace_back("tensor", std::string(tensor));
  return MakeError(Reason::kBadForeignFile, absl::StrCat(what, " ", std::string(problem)), metadata);
}

absl::StatusOr<std::vector<std::pair<std::string_view, PickleValue>>> ReadByName(const PickleDocument& document,
                                                                                 PickleValue dict,
                                                                                 const std::string& what) {
  std::vector<std::pair<std::string_view, PickleValue>> found;
  bool all_are_texts = true;
  document.ForEachPair(dict, [&](PickleValue key, PickleValue value) {
    const auto name = document.Text(key);
    all_are_texts = all_are_texts && name.has_value();
    if (name) found.emplace_back(*name, value);
  });
  if (!all_are_texts) return BadMetadata(what, "has a name that is no text");
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string_view name = found[i].first;
    if (i > 0 && found[i - 1].first == name) {
      return BadMetadata(what, absl::StrCat("describes '", std::string(name), "' twice"), name);
    }
    CAIRN_RETURN_IF_ERROR(Annotate(CheckName(name), what));
  }
  return found;
}

absl::StatusOr<uint32_t> FileNumbers::Of(PickleValue path) {
  const auto text = document_.Text(path);
  if (!text) {
    return MakeError(Reason::kBadForeignFile, absl::StrCat(what_, " has a file name that is no text"),
                     {{"file", what_}});
  }
  const auto [found, fresh] = numbers_.try_emplace(*text, static_cast<uint32_t>(names_.size()));
  if (fresh) {
    if (!IsPathBelow(*text)) {
      return MakeError(Reason::kPathEscape,
                       absl::StrCat(what_, ": '", std::string(*text), "' is no path below the directory"),
                       {{"file", std::string(*text)}, {"next", std::string(kOutsideAction)}});
    }
    names_.emplace_back(*text);
  }
  return found->second;
}

absl::Status ReadEachFile(size_t files, const std::function<absl::Status(size_t file)>& read) {
  return ForEachOnThreads("to read a file of another library", files, kReaders,
                          [&](size_t file, int) { return read(file); });
}

}  // namespace cairn

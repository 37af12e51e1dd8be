#include "agent/staging/huge_pages.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

constexpr char kTransparent[] = "/sys/kernel/mm/transparent_hugepage/";
constexpr char kSetAside[] = "/sys/kernel/mm/hugepages/hugepages-2048kB/";

// Returns the word in brackets of "always [never] advise"; "" if there is none.
std::string ChosenWord(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    if (word.size() > 2 && word.front() == '[' && word.back() == ']') return word.substr(1, word.size() - 2);
  }
  return "";
}

uint64_t ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  return file >> number ? number : 0;
}

}  // namespace

HugePages ReadHugePages(const std::string& root) {
  HugePages pages;
  // A kernel that knows several sizes says it for each, and "inherit" is what the file for all says.
  std::string chosen = ChosenWord(absl::StrCat(root, kTransparent, "hugepages-2048kB/shmem_enabled"));
  if (chosen.empty() || chosen == "inherit") chosen = ChosenWord(absl::StrCat(root, kTransparent, "shmem_enabled"));
  pages.by_itself = chosen == "always" || chosen == "within_size" || chosen == "advise" || chosen == "force";
  const auto number = [&root](const char* name) { return ReadNumber(absl::StrCat(root, kSetAside, name)); };
  const uint64_t free = number("free_hugepages"), reserved = number("resv_hugepages");
  const uint64_t allowed = number("nr_overcommit_hugepages"), taken = number("surplus_hugepages");
  pages.set_aside = free - std::min(free, reserved) + allowed - std::min(allowed, taken);
  return pages;
}

}  // namespace cairn

#include "corpus/io/object_inputs.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/files_below.h"

namespace cairn::corpus {
namespace {

constexpr std::string_view kWildcards = "*?[";

using Entry = ObjectStores::Entry;

class Finder {
 public:
  explicit Finder(ObjectStores& stores) : stores_(stores) {}

  // Adds all objects below a directory.
  absl::Status AddBelow(const std::string& directory) {
    std::vector<std::string> left = {directory};
    while (!left.empty()) {
      const std::string next = std::move(left.back());
      left.pop_back();
      CAIRN_ASSIGN_OR_RETURN(const std::vector<Entry> entries, stores_.List(next));
      for (const Entry& entry : entries) {
        if (entry.name.starts_with('.')) continue;
        std::string name = absl::StrCat(next, "/", entry.name);
        if (entry.directory) {
          left.push_back(std::move(name));
        } else {
          Add(std::move(name), entry);
        }
      }
    }
    return absl::OkStatus();
  }

  // Adds the objects in `directory` whose further names are matched by `patterns`, which are not empty.
  absl::Status AddMatching(const std::string& directory, const std::vector<std::string>& patterns, size_t next = 0) {
    const std::string& pattern = patterns[next];
    const bool last = next + 1 == patterns.size();
    if (!last && pattern.find_first_of(kWildcards) == pattern.npos) {
      return AddMatching(absl::StrCat(directory, "/", pattern), patterns, next + 1);
    }
    CAIRN_ASSIGN_OR_RETURN(const std::vector<Entry> entries, stores_.List(directory));
    for (const Entry& entry : entries) {
      const bool matches = entry.name == pattern || fnmatch(pattern.c_str(), entry.name.c_str(), FNM_PERIOD) == 0;
      if (entry.directory == last || !matches) continue;
      std::string name = absl::StrCat(directory, "/", entry.name);
      if (last) {
        Add(std::move(name), entry);
      } else {
        CAIRN_RETURN_IF_ERROR(AddMatching(name, patterns, next + 1));
      }
    }
    return absl::OkStatus();
  }

  std::vector<std::string> Found() {
    SortByName(found_);
    return std::move(found_);
  }

 private:
  void Add(std::string name, const Entry& entry) {
    // Some listings tell no identity; then the first reader learns it.
    if (!entry.identity.empty()) stores_.Remember(name, {entry.bytes, entry.identity});
    found_.push_back(std::move(name));
  }

  ObjectStores& stores_;
  std::vector<std::string> found_;
};

absl::Status Nothing(std::string_view what, const std::string& name) {
  return MakeError(Reason::kInputUnreadable, absl::StrCat(std::string(what), " ", name),
                   {{"file", name}, {"next", "Correct the name; a listing of the bucket has those that stand."}});
}

}  // namespace

absl::StatusOr<std::vector<std::string>> FindObjects(ObjectStores& stores, const std::string& argument) {
  Finder finder(stores);
  // Where the store is, "?endpoint=" does not say; NameOf refuses it.
  const bool options = absl::StrContains(argument, "?endpoint=") || absl::StrContains(argument, "?region=") ||
                       absl::StrContains(argument, "?style=");
  const size_t wildcard = options ? argument.npos : argument.find_first_of(kWildcards);
  if (wildcard != argument.npos) {
    const size_t slash = argument.rfind('/', wildcard);
    CAIRN_ASSIGN_OR_RETURN(const std::string directory, stores.NameOf(argument.substr(0, slash)));
    const std::vector<std::string> patterns = absl::StrSplit(argument.substr(slash + 1), '/', absl::SkipEmpty());
    CAIRN_RETURN_IF_ERROR(finder.AddMatching(directory, patterns));
    std::vector<std::string> found = finder.Found();
    if (found.empty()) return Nothing("no object matches", argument);
    return found;
  }
  CAIRN_ASSIGN_OR_RETURN(const std::string name, stores.NameOf(argument));
  if (!argument.ends_with('/') && std::count(name.begin(), name.end(), '/') > 2) {  // else it is only a bucket
    const auto object = stores.Open(name);
    if (object.ok()) return std::vector<std::string>{name};
    if (!HasReason(object.status(), Reason::kInputUnreadable) || stores.Recall(name).has_value()) {
      return object.status();
    }
  }
  CAIRN_RETURN_IF_ERROR(finder.AddBelow(name));
  std::vector<std::string> found = finder.Found();
  if (found.empty()) return Nothing("there is no object", absl::StrCat(name, ", and none is below it"));
  return found;
}

}  // namespace cairn::corpus

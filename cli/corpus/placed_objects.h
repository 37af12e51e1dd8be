// The object stores of store/open, as corpus/io asks for them.
#ifndef CAIRN_CLI_CORPUS_PLACED_OBJECTS_H_
#define CAIRN_CLI_CORPUS_PLACED_OBJECTS_H_

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "corpus/io/object_stores.h"
#include "store/open/place.h"

namespace cairn::cli {

// It makes no request before it is asked for an object. Requests are given up once InterruptFlag is set, with
// INTERRUPTED.
class PlacedObjects : public corpus::ObjectStores {
 public:
  bool Has(std::string_view name) const override;
  absl::StatusOr<std::string> NameOf(std::string_view text) const override;
  // Two requests for each thousand names.
  absl::StatusOr<std::vector<Entry>> List(const std::string& directory) override;
  bool Stands(const std::string& name) override;
  // One request, which finds out whether the object may be written. What killed runs have left in its directory is
  // removed if it is older than a day, because a store has no locks that would tell it from a run that is alive.
  absl::StatusOr<std::unique_ptr<corpus::ObjectWriter>> Create(const std::string& name) override;
  absl::Status Remove(const std::vector<std::string>& names) override;

 private:
  absl::StatusOr<std::unique_ptr<corpus::ObjectReader>> OpenNow(const std::string& name) override;
  void RemoveLeft(const Place& place, const std::string& directory);

  Mutex mutex_;
  std::set<std::string> cleaned_ ABSL_GUARDED_BY(mutex_);  // directories, by their full names
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_PLACED_OBJECTS_H_

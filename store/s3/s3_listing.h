// The pages of a listing, one behind the other. A function of what the store answers.
#ifndef CAIRN_STORE_S3_S3_LISTING_H_
#define CAIRN_STORE_S3_S3_LISTING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "store/s3/s3_xml.h"

namespace cairn {

struct S3Listed {
  std::string name;  // the key
  uint64_t bytes = 0;
  std::string etag;     // S3Object::etag
  bool prefix = false;  // keys that begin so, up to the next slash
};

// Not thread-safe.
class S3Listing {
 public:
  // The keys that begin with `prefix` and lie behind `after`, in their order; with `by_directory` those with a further
  // slash come as one. At most `most`.
  S3Listing(std::string prefix, bool by_directory, std::string after, size_t most)
      : prefix_(std::move(prefix)), by_directory_(by_directory), after_(std::move(after)), most_(most) {}

  // Nothing more is to be asked for.
  bool complete() const { return complete_ || listed_.size() >= most_; }
  // Returns the query that asks for the next page.
  std::string Query() const;
  // Takes a page. Returns what it lacks to be one: "an end"; nothing if it is good.
  std::string Add(const S3Xml& page);
  // Takes what was listed.
  std::vector<S3Listed> Take();

 private:
  const std::string prefix_;
  const bool by_directory_;
  const std::string after_;
  const size_t most_;
  std::vector<S3Listed> listed_;
  std::string token_;  // asks for the next page
  std::string last_;   // the last name so far
  size_t empty_pages_ = 0;
  bool complete_ = false;
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_LISTING_H_

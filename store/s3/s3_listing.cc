#include "store/s3/s3_listing.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "store/s3/s3_address.h"

namespace cairn {
namespace {

// Listings have at most so many names, and pages without names.
constexpr size_t kMostListed = 10'000'000;
constexpr size_t kMostEmptyPages = 100;
constexpr size_t kMostInPage = 1000;

}  // namespace

std::string S3Listing::Query() const {
  std::string query = absl::StrCat("list-type=2&max-keys=", std::min(kMostInPage, most_ - listed_.size()));
  if (by_directory_) absl::StrAppend(&query, "&delimiter=%2F");
  if (!prefix_.empty()) absl::StrAppend(&query, "&prefix=", PercentEncoded(prefix_, /*slash=*/true));
  if (!after_.empty()) absl::StrAppend(&query, "&start-after=", PercentEncoded(after_, /*slash=*/true));
  if (!token_.empty()) absl::StrAppend(&query, "&continuation-token=", PercentEncoded(token_, /*slash=*/true));
  return query;
}

std::string S3Listing::Add(const S3Xml& page) {
  const auto before = static_cast<ptrdiff_t>(listed_.size());
  for (const auto& [name, texts] : page.elements) {
    S3Listed one;
    one.prefix = name == "CommonPrefixes";
    one.name = S3Xml::TextOf(texts, one.prefix ? "Prefix" : "Key");
    if (!one.prefix && !absl::SimpleAtoi(S3Xml::TextOf(texts, "Size"), &one.bytes)) {
      return absl::StrCat("the size of ", one.name);
    }
    one.etag = S3Xml::TextOf(texts, "ETag");
    if (!one.name.starts_with(prefix_)) continue;
    if (one.prefix && (one.name.size() <= prefix_.size() || !one.name.ends_with('/'))) {
      return "the name of a directory";
    }
    listed_.push_back(std::move(one));
  }
  const auto by_name = [](const S3Listed& a, const S3Listed& b) { return a.name < b.name; };
  const auto added = listed_.begin() + before;
  std::sort(added, listed_.end(), by_name);
  // Else names would be missed or come twice, or the listing would never end.
  if (added != listed_.end() ? added->name <= last_ : ++empty_pages_ > kMostEmptyPages) {
    return "names behind those before";
  }
  if (added != listed_.end()) last_ = listed_.back().name;
  if (listed_.size() > kMostListed) return "an end";
  const std::string truncated = page.Text("IsTruncated");
  complete_ = truncated == "false";
  if (complete_) return "";
  token_ = page.Text("NextContinuationToken");
  if (truncated != "true" || token_.empty()) return "IsTruncated, or the token of what follows";
  return "";
}

std::vector<S3Listed> S3Listing::Take() {
  const auto same = [](const S3Listed& a, const S3Listed& b) { return a.name == b.name; };
  listed_.erase(std::unique(listed_.begin(), listed_.end(), same), listed_.end());
  return std::move(listed_);
}

}  // namespace cairn

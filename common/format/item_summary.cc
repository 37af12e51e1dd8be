#include "common/format/item_summary.h"

#include <algorithm>
#include <utility>

#include "common/tensor/fingerprint.h"

namespace cairn {
namespace {

// Makes the part that the bytes [begin, end) of an item are. To a fingerprint, an element is one more dimension, of its
// bytes.
FingerprintPart PartOf(const StoredItem& item, uint64_t begin, uint64_t end) {
  Shape shape = item.global_shape;
  Box box = item.box;
  const int64_t element = BytesOf(item.dtype);
  shape.push_back(element);
  box.offset.push_back(0);
  box.shape.push_back(element);
  const int64_t first = item.flat.has_value() ? item.flat->begin * element : 0;
  return {shape, box, {first + static_cast<int64_t>(begin), first + static_cast<int64_t>(end)}, 1};
}

// Adds the statistics of one element, whose bytes came in two pieces.
void AddElement(const StoredItem& item, uint64_t begin, const std::string& element, TensorSummary& to) {
  if (!HasStatistics(item.dtype)) return;
  FingerprintPart part = PartOf(item, begin, begin + element.size());
  part.NextRunBytes();
  StatisticsOf one(item.dtype);
  one.Add(part.position() / element.size(), element.data(), 1);
  to.statistics.Add(one.value());
}

ItemSummarizer::Fragment Summarize(const StoredItem& item, uint64_t begin, const char* bytes, uint64_t size) {
  ItemSummarizer::Fragment fragment;
  fragment.end = begin + size;
  const auto element = static_cast<uint64_t>(BytesOf(item.dtype));
  const bool numbers = HasStatistics(item.dtype);
  const uint64_t into = begin % element;
  const uint64_t head = into == 0 ? 0 : std::min(element - into, size);
  const uint64_t tail = (size - head) % element;
  if (numbers) {
    fragment.head.assign(bytes, head);
    fragment.tail.assign(bytes + size - tail, tail);
  }
  FingerprintPart part = PartOf(item, begin, begin + size);
  StatisticsOf statistics(numbers ? item.dtype : DType::kFloat32);
  const uint64_t end = size - tail;  // of whole elements
  for (uint64_t at = 0; at < size;) {
    const uint64_t run = std::min(part.NextRunBytes(), size - at);
    if (run == 0) break;
    // Whole elements of the run; runs end with an element, but for the piece's own ends.
    const uint64_t from = std::max(at, head), until = std::min(at + run, end);
    if (numbers && from < until) {
      statistics.Add((part.position() + (from - at)) / element, bytes + from, (until - from) / element);
    }
    part.Add(bytes + at, run);
    at += run;
  }
  fragment.summary.fingerprint_parts = part.Value();
  if (numbers) fragment.summary.statistics = statistics.value();
  return fragment;
}

}  // namespace

ItemSummarizer::ItemSummarizer(std::vector<const StoredItem*> items) : items_(std::move(items)), begins_({0}) {
  for (const StoredItem* item : items_) begins_.push_back(begins_.back() + item->bytes());
}

std::vector<ItemSummarizer::Fragment> ItemSummarizer::Touch(uint64_t offset, const char* bytes, uint64_t size) const {
  std::vector<Fragment> fragments;
  const uint64_t end = std::min(offset + size, begins_.back());
  // The last item that begins at or before `offset`. So earlier items without bytes are skipped.
  size_t item = static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), offset) - begins_.begin());
  if (item > 0) --item;
  for (uint64_t at = offset; at < end;) {
    if (at >= begins_[item + 1]) {
      ++item;
      continue;
    }
    const uint64_t stop = std::min(end, begins_[item + 1]);
    if (!items_[item]->object) {
      fragments.push_back(Summarize(*items_[item], at - begins_[item], bytes + (at - offset), stop - at));
      fragments.back().item = static_cast<uint32_t>(item);
    }
    at = stop;
  }
  return fragments;
}

std::vector<TensorSummary> ItemSummarizer::Combine(std::span<const std::vector<Fragment>> pieces) const {
  std::vector<TensorSummary> summaries(items_.size());
  std::string element;  // whose bytes are in several pieces
  uint64_t begin = 0;
  for (const auto& piece : pieces) {
    for (const Fragment& fragment : piece) {
      const StoredItem& item = *items_[fragment.item];
      summaries[fragment.item].Add(fragment.summary);
      element += fragment.head;
      if (!element.empty() && element.size() == static_cast<size_t>(BytesOf(item.dtype))) {
        AddElement(item, begin, element, summaries[fragment.item]);
        element.clear();
      }
      if (fragment.tail.empty()) continue;
      const auto element_bytes = static_cast<uint64_t>(BytesOf(item.dtype));
      element = fragment.tail;
      // The tail is at the end of the fragment, and begins an element.
      begin = fragment.end - fragment.end % element_bytes;
    }
  }
  return summaries;
}

}  // namespace cairn

// Computes the summaries of a file's tensors in one pass over the data. The data comes in pieces, which may begin and
// end anywhere, also within an element, and may be processed in any order.
#ifndef CAIRN_COMMON_FORMAT_ITEM_SUMMARY_H_
#define CAIRN_COMMON_FORMAT_ITEM_SUMMARY_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/format/stored_item.h"
#include "common/tensor/summary.h"

namespace cairn {

// The items lie in the file's data in their order, without gaps. Objects have empty summaries.
class ItemSummarizer {
 public:
  // `items` must outlive the object.
  explicit ItemSummarizer(std::vector<const StoredItem*> items);

  // What a piece of the data says of one item. If the piece begins or ends within an element, `head` and `tail` are the
  // bytes of that element, of which there are no statistics in `summary`.
  struct Fragment {
    uint32_t item = 0;
    uint64_t end = 0;  // in the item, in bytes
    TensorSummary summary;
    std::string head, tail;
  };
  // Returns the fragments of data[offset, offset + size), which is at `bytes`. Data behind the last item is passed
  // over. Thread-safe.
  std::vector<Fragment> Touch(uint64_t offset, const char* bytes, uint64_t size) const;

  // Returns the summary of each item, from the fragments of all data, in the order of the data.
  std::vector<TensorSummary> Combine(std::span<const std::vector<Fragment>> pieces) const;

 private:
  std::vector<const StoredItem*> items_;
  std::vector<uint64_t> begins_;  // of each item in the data, and the end of the last one
};

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_ITEM_SUMMARY_H_

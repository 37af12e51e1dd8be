// The values that a pickle describes, as data.
#ifndef CAIRN_FOREIGN_READ_PICKLE_PICKLE_DOCUMENT_H_
#define CAIRN_FOREIGN_READ_PICKLE_PICKLE_DOCUMENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "foreign/read/pickle/paged_array.h"

namespace cairn {

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,
  kWideInt,  // an integer of more than 60 bits; if it needs more than 64, PickleDocument::Int gives nothing
  kFloat,
  kText,
  kBytes,
  kTuple,  // torch.Size is one, too
  kList,
  kDict,        // collections.OrderedDict is one, too
  kSet,         // set and frozenset
  kGlobal,      // the name of a class or function; it is never looked up
  kObject,      // a record of a call and of the state that Python would have set: PickleObject
  kPersistent,  // a value that the writer stored elsewhere, such as the storages in torch's files
};

// A handle to a value of one PickleDocument. It is 8 bytes, because documents have tens of millions.
class PickleValue {
 public:
  constexpr PickleValue() : PickleValue(PickleKind::kNone, 0) {}
  constexpr PickleValue(PickleKind kind, int64_t payload)
      : bits_(static_cast<uint64_t>(payload) << 4 | static_cast<uint64_t>(kind)) {}
  constexpr PickleKind kind() const { return static_cast<PickleKind>(bits_ & 15); }
  // The value of a kBool or kInt, else an index into a table of the document.
  constexpr int64_t payload() const { return static_cast<int64_t>(bits_) >> 4; }
  bool operator==(const PickleValue&) const = default;

 private:
  uint64_t bits_;
};

// A record of a call that Python would have made to rebuild an object.
struct PickleObject {
  PickleValue callable;  // mostly a kGlobal
  PickleValue arguments;
  PickleValue state;  // of __setstate__ or __dict__; kNone if there is none
  PickleValue items;  // a kList or kDict of what was appended or set; kNone if there is nothing
};

// The values that a pickle describes. They point into the pickle's bytes, which must outlive the document, unless
// ConsumePickle has made it. Values may contain each other in a cycle, so code that walks over them must limit the
// depth.
class PickleDocument {
 public:
  PickleValue root() const { return root_; }
  size_t consumed() const { return consumed_; }

  std::optional<int64_t> Int(PickleValue value) const;
  std::optional<bool> Bool(PickleValue value) const;
  std::optional<double> Float(PickleValue value) const;
  std::optional<std::string_view> Text(PickleValue value) const;
  std::optional<std::string_view> Bytes(PickleValue value) const;
  // Returns "module.name" of a kGlobal; nothing for another value.
  std::optional<std::string> Global(PickleValue value) const;
  bool IsGlobal(PickleValue value, std::string_view module, std::string_view name) const;
  // Return null if `value` is no object. The second form also returns null if the callable is not that global.
  const PickleObject* Object(PickleValue value) const;
  const PickleObject* Object(PickleValue value, std::string_view module, std::string_view name) const;
  // Returns the value by which the writer named a kPersistent.
  std::optional<PickleValue> Persistent(PickleValue value) const;

  // The number of elements of a tuple, list or set, or of pairs of a dict; 0 for others.
  size_t Size(PickleValue value) const;
  // Calls `visit` with each element of a tuple, list or set; for a dict with key, value, key, value and so on. Does
  // nothing for other values.
  template <typename Visit>
  void ForEach(PickleValue value, Visit&& visit) const {
    if (!IsContainer(value)) return;
    for (size_t n = static_cast<size_t>(value.payload());; n = containers_[n].next) {
      const Container& part = containers_[n];
      for (size_t i = 0; i < part.count; ++i) visit(cells_[part.begin + i]);
      if (part.next == kLast) return;
    }
  }
  template <typename Visit>
  void ForEachPair(PickleValue value, Visit&& visit) const {
    if (value.kind() != PickleKind::kDict) return;
    bool is_key = true;
    PickleValue key;
    ForEach(value, [&](PickleValue each) {
      if (is_key) {
        key = each;
      } else {
        visit(key, each);
      }
      is_key = !is_key;
    });
  }
  std::vector<PickleValue> Elements(PickleValue value, size_t most) const;
  // Copies the first elements to `first`, as many as fit, without allocating memory. Returns their number.
  size_t CopyElements(PickleValue value, std::span<PickleValue> first) const;
  // Returns the last value under a text key, in a dict or an object's state. It finds nothing in an object with more
  // than 1000 attributes; the objects that Cairn knows have a few.
  std::optional<PickleValue> Find(PickleValue value, std::string_view key) const;
  // Returns the type of a value for people, such as "argparse.Namespace" or "a tuple".
  std::string Describe(PickleValue value) const;

 private:
  friend class PickleBuilder;
  static constexpr uint32_t kLast = UINT32_MAX;
  // A part of a container. Values that are added later may need a further part.
  struct Container {
    uint32_t begin = 0;  // in cells_
    uint32_t count = 0;
    uint32_t next = kLast;
    uint32_t tail = kLast;  // of the first part: the last one
  };
  struct Name {
    std::string_view module;
    std::string_view name;
  };

  static bool IsContainer(PickleValue value) {
    return value.kind() >= PickleKind::kTuple && value.kind() <= PickleKind::kSet;
  }

  PickleValue root_;
  size_t consumed_ = 0;
  PagedArray<PickleValue> cells_;
  PagedArray<Container> containers_;
  PagedArray<PickleObject> objects_;
  PagedArray<std::string_view> texts_;
  PagedArray<Name> globals_;
  PagedArray<std::optional<int64_t>> wide_;
  PagedArray<double> floats_;
  PagedArray<PickleValue> persistent_;
  std::vector<std::unique_ptr<std::string>> owned_;  // texts that are not in the input
  uint64_t owned_bytes_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_PICKLE_PICKLE_DOCUMENT_H_

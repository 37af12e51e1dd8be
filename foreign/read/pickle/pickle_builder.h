// Puts the values of a pickle together while it is read.
#ifndef CAIRN_FOREIGN_READ_PICKLE_PICKLE_BUILDER_H_
#define CAIRN_FOREIGN_READ_PICKLE_PICKLE_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "foreign/read/pickle/pickle_document.h"

namespace cairn {

// Fills one PickleDocument. Values are made once and are never moved; containers and objects may grow afterwards. Texts
// given as views are not copied and must outlive the document. Indexes are not checked: a value must come from this
// builder. Not thread-safe.
class PickleBuilder {
 public:
  const PickleDocument& document() const { return document_; }
  // Gives the document away. `consumed` is how many bytes the pickle took.
  PickleDocument Finish(PickleValue root, size_t consumed) &&;

  PickleValue Int(int64_t value);
  // Adds an integer that needs more than 64 bits; its value is not kept.
  PickleValue WideInt();
  PickleValue Float(double value);
  PickleValue Text(std::string_view text);
  PickleValue Bytes(std::string_view bytes);
  // Returns a copy of a text that the document keeps, to be given to the functions above.
  std::string_view Keep(std::string_view text);
  // Adds bytes that were decoded, so that they are not in the input; the document owns them.
  PickleValue OwnedBytes(std::string bytes);
  PickleValue Global(std::string_view module, std::string_view name);
  PickleValue Persistent(PickleValue name);
  PickleValue Object(PickleValue callable, PickleValue arguments);
  // Returns the record of a kObject, to be filled.
  PickleObject& object(PickleValue value) { return document_.objects_[static_cast<size_t>(value.payload())]; }

  // Makes a container (kTuple, kList, kDict or kSet) of these values; for a dict they are key, value, key, value.
  PickleValue Container(PickleKind kind, std::span<const PickleValue> values);
  // Adds these values at the end of a container. The cost is linear in the number of added values, however large the
  // container is.
  void Extend(PickleValue container, std::span<const PickleValue> values);

  uint64_t memory_bytes() const;
  // Returns whether the tables hold so much that their indexes may soon be too small.
  bool IsFull() const;

 private:
  PickleValue Handle(PickleKind kind, size_t size) const { return {kind, static_cast<int64_t>(size) - 1}; }

  PickleDocument document_;
  std::string* block_ = nullptr;  // of document_.owned_: the one that Keep fills
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_PICKLE_PICKLE_BUILDER_H_

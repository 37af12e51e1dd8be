// Gives the results of those calls in a pickle whose result is plain data, without calling anything.
#ifndef CAIRN_FOREIGN_READ_PICKLE_PICKLE_CALLS_H_
#define CAIRN_FOREIGN_READ_PICKLE_PICKLE_CALLS_H_

#include <cstdint>
#include <optional>

#include "foreign/read/pickle/pickle_builder.h"
#include "foreign/read/pickle/pickle_document.h"

namespace cairn {

// The calls of one pickle. `builder` must outlive it. Not thread-safe.
class PickleCalls {
 public:
  explicit PickleCalls(PickleBuilder& builder) : builder_(builder) {}

  // Returns the value that a call would give. `arguments` is a tuple.
  //   collections.OrderedDict()            an empty dict
  //   torch.Size(tuple)                    that tuple
  //   _codecs.encode(text, "latin1")       bytes, as protocol 2 writes them
  //   anything else                        a kObject, which records the call
  // Returns nothing if a text that should be Latin-1 has characters beyond it.
  std::optional<PickleValue> Result(PickleValue callable, PickleValue arguments);

 private:
  enum class Meaning : uint8_t { kUnknown, kOrderedDict, kTorchSize, kEncode };
  Meaning MeaningOf(PickleValue callable);

  PickleBuilder& builder_;
  // The last callable and its meaning. Mostly the next call is of the same one, so its name need not be compared again.
  PickleValue last_;
  Meaning meaning_ = Meaning::kUnknown;
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_PICKLE_PICKLE_CALLS_H_

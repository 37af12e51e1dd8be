// The calls of a pickle whose result Cairn knows, because it is plain data.
#ifndef CAIRN_IMPORT_PICKLE_CALLS_H_
#define CAIRN_IMPORT_PICKLE_CALLS_H_

#include <optional>

#include "import/pickle_builder.h"
#include "import/pickle_document.h"

namespace cairn {

// Returns what a call stands for; nothing is called. `arguments` is a tuple.
//   collections.OrderedDict()            an empty dict
//   torch.Size(tuple)                    that tuple
//   _codecs.encode(text, "latin1")       bytes, as protocol 2 writes them
//   anything else                        a kObject, which records the call
// Returns nothing if a text that should be Latin-1 has characters beyond it.
std::optional<PickleValue> ResultOfCall(PickleValue callable, PickleValue arguments, PickleBuilder& builder);

}  // namespace cairn

#endif  // CAIRN_IMPORT_PICKLE_CALLS_H_

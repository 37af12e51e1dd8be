#include "foreign/read/pickle/pickle_calls.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace cairn {
namespace {

// Decodes a UTF-8 text of code points below 256: each is one byte. Nothing for other texts.
std::optional<std::string> Latin1(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < 0x80) {
      bytes.push_back(text[i]);
    } else if ((byte == 0xc2 || byte == 0xc3) && i + 1 < text.size() &&
               (static_cast<uint8_t>(text[i + 1]) & 0xc0) == 0x80) {
      bytes.push_back(static_cast<char>((byte & 3) << 6 | (static_cast<uint8_t>(text[++i]) & 0x3f)));
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

}  // namespace

PickleCalls::Meaning PickleCalls::MeaningOf(PickleValue callable) {
  if (callable == last_) return meaning_;
  const PickleDocument& document = builder_.document();
  last_ = callable;
  meaning_ = document.IsGlobal(callable, "collections", "OrderedDict") ? Meaning::kOrderedDict
             : document.IsGlobal(callable, "torch", "Size")            ? Meaning::kTorchSize
             : document.IsGlobal(callable, "_codecs", "encode")        ? Meaning::kEncode
                                                                       : Meaning::kUnknown;
  return meaning_;
}

std::optional<PickleValue> PickleCalls::Result(PickleValue callable, PickleValue arguments) {
  const Meaning meaning = MeaningOf(callable);
  const PickleDocument& document = builder_.document();
  std::array<PickleValue, 3> first;
  const size_t count = meaning == Meaning::kUnknown ? 0 : document.CopyElements(arguments, first);
  if (meaning == Meaning::kOrderedDict && count == 0) return builder_.Container(PickleKind::kDict, {});
  if (meaning == Meaning::kTorchSize && count == 1 && first[0].kind() == PickleKind::kTuple) return first[0];
  // Protocol 2 has no opcode for bytes: it writes them as a text of Latin-1.
  if (meaning == Meaning::kEncode && count == 2 && first[0].kind() == PickleKind::kText &&
      document.Text(first[1]) == "latin1") {
    std::optional<std::string> bytes = Latin1(*document.Text(first[0]));
    if (!bytes.has_value()) return std::nullopt;
    return builder_.OwnedBytes(*std::move(bytes));
  }
  return builder_.Object(callable, arguments);
}

}  // namespace cairn

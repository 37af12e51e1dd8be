#include "import/pickle_calls.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {
namespace {

// Returns the bytes that a UTF-8 text of code points below 256 stands for.
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

std::optional<PickleValue> ResultOfCall(PickleValue callable, PickleValue arguments, PickleBuilder& builder) {
  const PickleDocument& document = builder.document();
  const size_t count = document.Size(arguments);
  if (document.IsGlobal(callable, "collections", "OrderedDict") && count == 0) {
    return builder.Container(PickleKind::kDict, {});
  }
  const std::vector<PickleValue> first = document.Elements(arguments, 2);
  if (document.IsGlobal(callable, "torch", "Size") && count == 1 && first[0].kind() == PickleKind::kTuple) {
    return first[0];
  }
  // Protocol 2 has no bytes: it writes the text that they are in Latin-1.
  if (document.IsGlobal(callable, "_codecs", "encode") && count == 2 && first[0].kind() == PickleKind::kText &&
      document.Text(first[1]) == "latin1") {
    std::optional<std::string> bytes = Latin1(*document.Text(first[0]));
    if (!bytes.has_value()) return std::nullopt;
    return builder.OwnedBytes(*std::move(bytes));
  }
  return builder.Object(callable, arguments);
}

}  // namespace cairn

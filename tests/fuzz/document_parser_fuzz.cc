#include <cstdint>
#include <cstdlib>
#include <string>

#include "corpus/preprocess/document_parser.h"

// The fast parser may refuse what the exact one reads, but where it accepts a line both must see the same texts.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn::corpus;  // NOLINT: the whole file is this target
  std::string padded(reinterpret_cast<const char*>(data), size);
  padded.append(kLinePadding, '\0');
  const std::string_view line = std::string_view(padded).substr(0, size);
  const std::vector<std::string> keys = {"text", "id", "modes"};
  // The first byte says whether there are modes.
  const size_t number_keys = size != 0 && data[0] == '\t' ? 1 : 0;
  const std::vector<std::string> used(keys.begin(), keys.end() - (number_keys == 0 ? 1 : 0));
  DocumentParser parser(used, number_keys);
  PythonJson exact;
  std::vector<FieldValue> values;
  const bool read = exact.Parse(line, used, values, number_keys).ok();
  if (parser.Parse(line).ok() != read) std::abort();
  if (!read) return 0;
  for (size_t i = 0; i < used.size(); ++i) {
    if (parser.values()[i].is_list != values[i].is_list || parser.values()[i].texts != values[i].texts) std::abort();
    if (parser.values()[i].numbers != values[i].numbers) std::abort();
  }
  return 0;
}

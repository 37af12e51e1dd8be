#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/resources/aligned_buffer.h"
#include "corpus/io/byte_source.h"
#include "corpus/io/tar_source.h"
#include "corpus/preprocess/python_json.h"

namespace {

using namespace cairn::corpus;  // NOLINT: the whole file is this target

// Gives the bytes in pieces of about `piece` bytes.
class Pieces final : public ByteSource {
 public:
  Pieces(std::string_view bytes, size_t piece) : bytes_(bytes), piece_(piece) {}
  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    const size_t count = std::min({size, piece_, bytes_.size()});
    std::memcpy(buffer, bytes_.data(), count);
    bytes_.remove_prefix(count);
    return count;
  }

 private:
  std::string_view bytes_;
  const size_t piece_;
};

// Returns all lines, also those before a failure, and whether it failed.
std::pair<std::string, bool> ReadLines(std::string_view tar, size_t piece) {
  const auto source = NewTarSource("in.tar", std::make_unique<Pieces>(tar, piece));
  cairn::AlignedBuffer buffer(1 << 16);
  std::string lines;
  while (true) {
    const auto count = source->Read(buffer.data(), buffer.size());
    if (!count.ok()) return {lines, true};
    if (*count == 0) return {lines, false};
    lines.append(buffer.data(), *count);
  }
}

}  // namespace

// However the bytes of a tar come, its lines are the same, and as Python reads them: each is an object with a text. The
// texts have at most six bytes for each byte of the tar.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view tar(reinterpret_cast<const char*>(data), size);
  const auto [lines, failed] = ReadLines(tar, 1 << 16);
  if (ReadLines(tar, 700) != std::pair(lines, failed)) std::abort();
  if (lines.size() > 6 * size + 64 * (size / 512 + 1)) std::abort();
  PythonJson json;
  std::vector<FieldValue> values;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    if (end == std::string::npos) {
      if (!failed) std::abort();
      break;
    }
    const std::string_view line = std::string_view(lines).substr(begin, end - begin);
    const absl::Status status = json.Parse(line, {"text"}, values);
    // Bytes that are no UTF-8 stay as they are.
    if (!status.ok() && status.message() != "the line is not UTF-8") std::abort();
    begin = end + 1;
  }
  return 0;
}

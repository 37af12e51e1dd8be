#include "corpus/sampler/npy_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/file/full_transfer.h"
#include "common/file/unique_fd.h"
#include "common/status/status.h"

namespace cairn::corpus {

uint64_t NpyHeader::data_bytes() const {
  uint64_t bytes = static_cast<uint64_t>(descr.back() - '0');
  for (const uint64_t length : shape) bytes *= length;
  return bytes;
}

std::string NpyHeader::Encode() const {
  constexpr size_t kAlignment = 64;
  constexpr size_t kPrefix = 10;             // magic, version, length
  constexpr size_t kDigitsOfFirstAxis = 21;  // room to grow in place
  std::string text = absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (",
                                  absl::StrJoin(shape, ", "), shape.size() == 1 ? ",), }" : "), }");
  text.append(kDigitsOfFirstAxis - absl::StrCat(shape.front()).size(), ' ');
  text.append(kAlignment - (kPrefix + text.size() + 1) % kAlignment, ' ');
  text.push_back('\n');
  std::string header("\x93NUMPY\x01\x00", 8);
  header.push_back(static_cast<char>(text.size() & 0xff));
  header.push_back(static_cast<char>(text.size() >> 8));
  return header + text;
}

bool HasNpyHeader(const std::string& path, const NpyHeader& header) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat found;
  if (!fd.valid() || fstat(fd.get(), &found) != 0 || !S_ISREG(found.st_mode)) return false;
  const std::string expected = header.Encode();
  if (static_cast<uint64_t>(found.st_size) != expected.size() + header.data_bytes()) return false;
  std::string bytes(expected.size(), '\0');
  size_t got = 0;
  return ReadFullyAt(fd.get(), bytes.data(), bytes.size(), 0, got) == 0 && got == bytes.size() && bytes == expected;
}

absl::StatusOr<NpyFile> NpyFile::Create(const std::string& path, const std::string& partial_path,
                                        const NpyHeader& header) {
  OutputFile::Options options;
  options.partial_path = partial_path;
  options.buffer_bytes = std::clamp(header.data_bytes(), uint64_t{4} << 10, uint64_t{1} << 20);
  CAIRN_ASSIGN_OR_RETURN(auto file, OutputFile::Create(path, options));
  CAIRN_RETURN_IF_ERROR(file->Append(header.Encode()));
  return NpyFile(std::move(file));
}

}  // namespace cairn::corpus

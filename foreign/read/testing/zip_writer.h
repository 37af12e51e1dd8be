// Writes zip archives for tests, as torch.save does: nothing is compressed, and all records stand in one directory.
//
// Format: PKWARE's APPNOTE.TXT, sections 4.3 and 4.5.
#ifndef CAIRN_FOREIGN_READ_TESTING_ZIP_WRITER_H_
#define CAIRN_FOREIGN_READ_TESTING_ZIP_WRITER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

struct ZipOptions {
  uint16_t method = 0;  // not 0: says that records are compressed
  size_t padding = 0;   // bytes in the extra field of each record's own header
  bool wide = false;    // 64-bit numbers, as for archives of more than 4 GiB
  std::string directory = "archive/";
};

inline std::string WriteZip(const std::vector<std::pair<std::string, std::string>>& records,
                            const ZipOptions& options = {}) {
  const auto little = [](uint64_t value, int count) {
    std::string bytes;
    for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i));
    return bytes;
  };
  const uint64_t none = UINT32_MAX;  // stands where the number is a 64-bit one elsewhere
  std::string archive, directory;
  for (const auto& [name, bytes] : records) {
    const std::string path = options.directory + name;
    const uint64_t at = archive.size();
    // Version, flags, method, time, date, checksum: of these the reader looks at the method only.
    const std::string common = little(0, 2) + little(options.method, 2) + little(0, 4) + little(0, 4);
    archive += little(0x04034b50, 4) + little(45, 2) + common + little(options.wide ? none : bytes.size(), 4) +
               little(options.wide ? none : bytes.size(), 4) + little(path.size(), 2) + little(options.padding, 2) +
               path + std::string(options.padding, '\0') + bytes;
    const std::string extra =
        options.wide ? little(1, 2) + little(24, 2) + little(bytes.size(), 8) + little(bytes.size(), 8) + little(at, 8)
                     : "";
    directory += little(0x02014b50, 4) + little(45, 2) + little(45, 2) + common +
                 little(options.wide ? none : bytes.size(), 4) + little(options.wide ? none : bytes.size(), 4) +
                 little(path.size(), 2) + little(extra.size(), 2) + little(0, 2) + little(0, 2) + little(0, 2) +
                 little(0, 4) + little(options.wide ? none : at, 4) + path + extra;
  }
  const uint64_t begin = archive.size();
  archive += directory;
  if (options.wide) {
    const uint64_t end64 = archive.size();
    archive += little(0x06064b50, 4) + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 4) + little(0, 4) +
               little(records.size(), 8) + little(records.size(), 8) + little(directory.size(), 8) + little(begin, 8);
    archive += little(0x07064b50, 4) + little(0, 4) + little(end64, 8) + little(1, 4);
  }
  archive += little(0x06054b50, 4) + little(0, 2) + little(0, 2) + little(options.wide ? 0xffff : records.size(), 2) +
             little(options.wide ? 0xffff : records.size(), 2) + little(options.wide ? none : directory.size(), 4) +
             little(options.wide ? none : begin, 4) + little(0, 2);
  return archive;
}

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_TESTING_ZIP_WRITER_H_

// Describes the bad lines of an input that a command leaves out.
#ifndef CAIRN_CORPUS_IO_BAD_LINES_H_
#define CAIRN_CORPUS_IO_BAD_LINES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "corpus/io/output_file.h"

namespace cairn::corpus {

// The bad lines of a part of a file. Most of many have few causes, so each of these is kept once. Not thread-safe.
class BadLines {
 public:
  // The message of `status` is the cause.
  void Add(uint64_t line, const absl::Status& status);
  uint64_t size() const { return lines_.size(); }

  // Appends one JSON object for each line: the file's name ("file"), the line's number in it, from 1 ("line"), and what
  // is wrong ("cause"). Fails as OutputFile::Append.
  absl::Status Write(const std::string& file, OutputFile& output) const;

 private:
  struct Entry {
    uint64_t line;
    uint32_t cause;
  };
  std::vector<Entry> lines_;
  std::map<std::string, uint32_t> numbers_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_BAD_LINES_H_

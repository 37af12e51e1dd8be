// Writes down what processes do to files, in the order in which it happens, so that the state of a disk after a power
// cut at any moment can be made of it. tests/fault/sweep/record.py reads it.
#ifndef CAIRN_TESTS_FAULT_FILE_LAYER_RECORD_H_
#define CAIRN_TESTS_FAULT_FILE_LAYER_RECORD_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace cairn::testing {

enum class Event : uint32_t { kCreate, kWrite, kTruncate, kSync, kLink, kRename, kUnlink, kMakeDirectory, kRemove };

// While it lives no other process, and no other thread, changes files: the order of the records is that of the calls.
// Does nothing where no record is asked for.
class Turn {
 public:
  Turn();
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool records() const { return records_; }

  // Adds a record. `path` and `other` are whole paths; `inode` is that of the file or directory.
  void Add(Event event, uint64_t inode, const std::string& path, const std::string& other = "", uint64_t offset = 0,
           std::string_view bytes = {});

 private:
  bool records_ = false;
  bool counted_ = false;
};

uint64_t InodeOf(int fd);
uint64_t InodeOf(const std::string& path);  // follows no link; 0: nothing is there

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_FAULT_FILE_LAYER_RECORD_H_

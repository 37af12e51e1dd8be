// Writes Python's pickle format as data: no code runs to make it.
//
// Format: CPython's Lib/pickletools.py describes every opcode.
#ifndef CAIRN_FOREIGN_WRITE_TORCH_PICKLE_WRITER_H_
#define CAIRN_FOREIGN_WRITE_TORCH_PICKLE_WRITER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"

namespace cairn {

// A program for Python's stack machine. Each call adds opcodes that push one value, or that take values from the stack.
// Globals and texts that come again are recalled, so a name that stands in many records is written once.
class PickleWriter {
 public:
  // The opcodes are those of protocol 2. With protocol 4, bytes have opcodes of their own.
  explicit PickleWriter(int protocol = 2);

  void None();
  void Bool(bool value);
  void Int(int64_t value);
  // Takes an integer of any size: decimal digits, with "-" in front if it is negative.
  void Decimal(std::string_view digits);
  void Float(double value);
  void Text(std::string_view utf8);
  // Protocol 2 has no opcode for bytes; Python itself writes a call of _codecs.encode then.
  void Bytes(std::string_view bytes);
  // Only for protocol 4: returns the program so far and forgets it. So many bytes follow it in the file, which the
  // program pushes as one value, and then what is written from now on.
  std::string TakeBefore(uint64_t bytes);
  void Global(std::string_view module, std::string_view name);
  void EmptyTuple();
  void EmptyList();
  void EmptyDict();

  // Marks where the values begin that the next of the following three takes.
  void Mark();
  void Tuple();        // makes them a tuple
  void AppendItems();  // appends them to the list below the mark
  void SetItems();     // puts them, key by key, into the dict below the mark
  // Takes a tuple of arguments and a callable or class below it, and pushes what the call gives.
  void Reduce();
  void NewObject();
  // Takes a state, which the object below it gets.
  void Build();
  // Takes a value by which the reader finds what is stored elsewhere.
  void PersistentId();

  // Push a tuple of integers, and the same as a torch.Size.
  void IntTuple(std::span<const int64_t> values);
  void TorchSize(std::span<const int64_t> values);

  // Ends the program, which leaves one value.
  std::string Finish() &&;

 private:
  void Number(uint64_t value, int bytes);
  void Binary(std::string_view text);
  // Recalls what was pushed under `key`, and returns true, if it was.
  bool Recall(const std::string& key);
  void Remember(const std::string& key);

  const int protocol_;
  std::string text_;
  absl::flat_hash_map<std::string, uint32_t> memo_;
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_TORCH_PICKLE_WRITER_H_

// Writes pickles of protocol 2 for tests: each function returns the opcodes that make one value.
//
// Format: CPython's Lib/pickletools.py.
#ifndef CAIRN_FOREIGN_READ_TESTING_PICKLE_WRITER_H_
#define CAIRN_FOREIGN_READ_TESTING_PICKLE_WRITER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cairn::pickle_writer {

inline std::string LittleEndian(uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

inline std::string None() { return "N"; }
inline std::string Bool(bool value) { return value ? "\x88" : "\x89"; }
inline std::string Int(int64_t value) { return "\x8a\x08" + LittleEndian(static_cast<uint64_t>(value), 8); }
inline std::string Text(const std::string& text) { return "X" + LittleEndian(text.size(), 4) + text; }
inline std::string Join(const std::vector<std::string>& values) {
  std::string joined;
  for (const std::string& value : values) joined += value;
  return joined;
}
inline std::string Tuple(const std::vector<std::string>& values) { return "(" + Join(values) + "t"; }
inline std::string List(const std::vector<std::string>& values) { return "(" + Join(values) + "l"; }
inline std::string Ints(const std::vector<int64_t>& numbers) {
  std::vector<std::string> values;
  for (const int64_t number : numbers) values.push_back(Int(number));
  return Tuple(values);
}
inline std::string Dict(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string opcodes = "(";
  for (const auto& [key, value] : pairs) opcodes += key + value;
  return opcodes + "d";
}
// A dict whose keys are these texts.
inline std::string Attributes(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::vector<std::pair<std::string, std::string>> named;
  for (const auto& [name, value] : pairs) named.emplace_back(Text(name), value);
  return Dict(named);
}
inline std::string Global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string Call(const std::string& callable, const std::vector<std::string>& arguments) {
  return callable + Tuple(arguments) + "R";
}
// An object of a class, whose state is given to __setstate__ or becomes its attributes.
inline std::string Object(const std::string& type, const std::string& state) { return type + ")\x81" + state + "b"; }
inline std::string Persistent(const std::string& name) { return name + "Q"; }

// Returns the whole pickle of a value.
inline std::string Pickle(const std::string& value) { return "\x80\x02" + value + "."; }

}  // namespace cairn::pickle_writer

#endif  // CAIRN_FOREIGN_READ_TESTING_PICKLE_WRITER_H_

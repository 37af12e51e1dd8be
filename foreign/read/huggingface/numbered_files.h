// Sets of files whose names say how many files the set has: model-00001-of-00003.safetensors.
#ifndef CAIRN_FOREIGN_READ_HUGGINGFACE_NUMBERED_FILES_H_
#define CAIRN_FOREIGN_READ_HUGGINGFACE_NUMBERED_FILES_H_

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace cairn {

struct NumberedFiles {
  int64_t total = 0;
  std::set<int64_t> numbers;  // the numbers of the files that were found
  std::vector<std::string> names;

  int64_t missing() const { return total - static_cast<int64_t>(numbers.size()); }
};

// Sorts the names of safetensors files into sets. The key of a set is the pattern of its names:
// "model-*-of-00003.safetensors". Names without such numbers are in no set.
std::map<std::string, NumberedFiles> FindNumberedFiles(std::span<const std::string> names);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_HUGGINGFACE_NUMBERED_FILES_H_

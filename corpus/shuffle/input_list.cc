#include "corpus/shuffle/input_list.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/files_below.h"
#include "corpus/io/object_inputs.h"
#include "corpus/io/object_stores.h"
#include "corpus/io/open_source.h"
#include "corpus/shuffle/line_key.h"

namespace cairn::corpus {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLargestHeader = 1 << 20;

absl::StatusOr<std::vector<std::string>> FilesMatching(const std::string& pattern) {
  glob_t found;
  const int result = glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> files;
  if (result == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      if (!fs::is_directory(found.gl_pathv[i])) files.emplace_back(found.gl_pathv[i]);
    }
    globfree(&found);
  }
  if (files.empty()) {
    return MakeError(Reason::kInputUnreadable, absl::StrCat("no file matches ", pattern), {{"file", pattern}});
  }
  SortByName(files);
  return files;
}

absl::StatusOr<std::vector<std::string>> PathsOf(const std::string& argument) {
  if (argument == "-") return std::vector<std::string>{argument};
  if (argument.empty()) {
    return MakeError(Reason::kInputUnreadable, "the name of an input is empty; a variable of the shell may not be set");
  }
  if (ObjectStores* const stores = StoresOf(argument)) return FindObjects(*stores, argument);
  struct stat found;
  if (stat(argument.c_str(), &found) != 0) {
    if (argument.find_first_of("*?[") != std::string::npos) return FilesMatching(argument);
    return InputError("open", argument, errno);
  }
  if (S_ISDIR(found.st_mode)) return FilesBelow(argument);
  return std::vector<std::string>{argument};
}

absl::StatusOr<InputFile> CheckedSize(InputFile input) {
  if (input.size <= kMaxOffset) return input;
  return MakeError(Reason::kUnsupported, absl::StrCat(input.path, " is above 16 TiB; split it"),
                   {{"file", input.path}});
}

absl::StatusOr<InputFile> DescribeObject(ObjectStores& stores, InputFile input) {
  std::optional<ObjectStores::Known> known = stores.Recall(input.path);
  if (!known.has_value()) {  // a listing did not tell enough
    CAIRN_ASSIGN_OR_RETURN(const auto reader, stores.Open(input.path));
    known = {reader->bytes(), reader->identity()};
  }
  input.compression = CompressionOf(input.path);
  input.rereadable = input.object = true;
  input.seekable = IsReadAsItIs(input.path);
  input.size = known->bytes;
  input.identity = known->identity;
  return CheckedSize(std::move(input));
}

absl::StatusOr<InputFile> Describe(const std::string& path) {
  InputFile input;
  input.path = path;
  if (path == "-") return input;
  if (ObjectStores* const stores = StoresOf(path)) return DescribeObject(*stores, std::move(input));
  struct stat found;
  if (stat(path.c_str(), &found) != 0) return InputError("open", path, errno);
  if (access(path.c_str(), R_OK) != 0) return InputError("open", path, errno);
  input.compression = CompressionOf(path);
  input.rereadable = S_ISREG(found.st_mode);
  input.seekable = input.rereadable && IsReadAsItIs(path);
  input.size = input.rereadable ? static_cast<uint64_t>(found.st_size) : 0;
  input.modified_ns = found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec;
  return CheckedSize(std::move(input));
}

}  // namespace

absl::StatusOr<std::vector<InputFile>> ListInputs(const std::vector<std::string>& arguments) {
  std::vector<InputFile> inputs;
  std::vector<std::string> errors;
  bool standard_input = false;
  std::set<std::pair<dev_t, ino_t>> pipes;
  for (const std::string& argument : arguments) {
    const absl::StatusOr<std::vector<std::string>> paths = PathsOf(argument);
    if (!paths.ok()) {
      // What a store has answered says itself what to do.
      if (!HasReason(paths.status(), Reason::kInputUnreadable)) return paths.status();
      errors.emplace_back(paths.status().message());
      continue;
    }
    for (const std::string& path : *paths) {
      if (path == "-" && std::exchange(standard_input, true)) {
        return MakeError(Reason::kBadRequest, "standard input is given twice");
      }
      absl::StatusOr<InputFile> input = Describe(path);
      struct stat found;
      const bool once = input.ok() && !input->rereadable && path != "-" && stat(path.c_str(), &found) == 0;
      if (once && !pipes.emplace(found.st_dev, found.st_ino).second) {
        return MakeError(Reason::kBadRequest, absl::StrCat(path, " is given twice, but can be read only once"),
                         {{"file", path}, {"next", "Give it once, or write it to a file."}});
      }
      if (HasReason(input.status(), Reason::kUnsupported)) return input.status();
      if (input.ok()) {
        inputs.push_back(*std::move(input));
      } else {
        errors.emplace_back(input.status().message());
      }
    }
  }
  if (!errors.empty()) return MakeError(Reason::kInputUnreadable, absl::StrJoin(errors, "; "));
  if (inputs.size() > kMaxFiles) {
    return MakeError(Reason::kUnsupported, absl::StrCat(inputs.size(), " input files are more than ", kMaxFiles));
  }
  return inputs;
}

absl::Status CheckColumns(const std::vector<InputFile>& inputs, const std::vector<std::string>& columns) {
  if (columns.empty() || std::any_of(inputs.begin(), inputs.end(), [](const auto& i) { return IsTable(i.path); })) {
    return absl::OkStatus();
  }
  return MakeError(Reason::kBadRequest, "--column has no effect: none of the inputs is a Parquet or Arrow file",
                   {{"next", "Leave --column out."}});
}

absl::StatusOr<std::string> ReadHeaders(std::vector<InputFile>& inputs, uint64_t lines, char separator,
                                        const SourceOptions& options) {
  std::string header;
  std::string owner;
  if (lines == 0) return header;
  AlignedBuffer buffer(64 << 10);
  for (InputFile& input : inputs) {
    if (!input.rereadable) {
      return MakeError(Reason::kBadRequest,
                       absl::StrCat("--header needs files; ", input.path, " can be read only once"),
                       {{"file", input.path}});
    }
    CAIRN_ASSIGN_OR_RETURN(auto source, OpenSource(input.path, options));
    std::string found;
    uint64_t count = 0;
    while (count < lines) {
      CAIRN_ASSIGN_OR_RETURN(const size_t size, source->Read(buffer.data(), buffer.size()));
      if (size == 0) break;
      const std::string_view block(buffer.data(), size);
      for (size_t start = 0; start < size && count < lines;) {
        const size_t stop = block.find(separator, start);
        found += block.substr(start, stop == std::string_view::npos ? stop : stop + 1 - start);
        if (stop != std::string_view::npos) ++count;
        start = stop == std::string_view::npos ? size : stop + 1;
      }
      if (found.size() > kLargestHeader) {
        return MakeError(
            Reason::kBadRequest,
            absl::StrCat("the first ", lines, " lines of ", input.path, " are above 1 MiB: is this a header?"),
            {{"file", input.path}});
      }
    }
    input.data_start = found.size();
    if (found.empty()) continue;
    if (found.back() != separator) found += separator;
    if (owner.empty()) {
      header = found;
      owner = input.path;
    } else if (found != header) {
      return MakeError(Reason::kBadRequest,
                       absl::StrCat("the header of ", input.path, " differs from that of ", owner,
                                    ": shuffle them apart, or make the headers equal"),
                       {{"file", input.path}});
    }
  }
  return header;
}

}  // namespace cairn::corpus

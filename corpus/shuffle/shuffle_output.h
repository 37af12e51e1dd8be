// Writes the output of a shuffle: one file or object, or several as its parts, with header lines, perhaps compressed,
// and hidden until all is whole.
#ifndef CAIRN_CORPUS_SHUFFLE_SHUFFLE_OUTPUT_H_
#define CAIRN_CORPUS_SHUFFLE_SHUFFLE_OUTPUT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"
#include "corpus/io/byte_source.h"
#include "corpus/io/output_file.h"
#include "corpus/shuffle/line_multiset.h"

namespace cairn::corpus {

// Compressed output is a chain of gzip members or zstd frames with this many bytes of text each (the last one of a part
// may be shorter). They depend only on the text and are compressed at the same time; any reader takes them as one
// stream.
inline constexpr size_t kFrameBytes = 1 << 20;

struct ShuffleOutputOptions {
  std::string path;      // no link, unless it is a stream
  bool stream = false;   // the path is a device, a FIFO or a descriptor (output_place.h), so there are no parts
  bool object = false;   // the path is an address in an object store
  int object_parts = 1;  // of an object: as OutputFile::Options has it
  // As OutputFile::Options has it: Commit only completes and syncs. Neither parts nor a compression.
  std::optional<uint64_t> at;
  // At most one of the three may be set. Bytes count before compression, with separators and header. A part has more
  // only if a single line does.
  uint64_t split_lines = 0;
  uint64_t split_bytes = 0;
  uint64_t split_files = 0;
  Compression compression = Compression::kNone;
  int threads = 1;  // threads that compress
  char separator = '\n';
  std::string header;  // stands at the begin of every part; has its separators
  bool direct = true;
  // If it is empty, hidden files get fresh names. Else they are `<prefix>.<part>`, and stay if `keep` is set.
  std::string partial_prefix;
  const std::atomic<bool>* stop = nullptr;  // interrupts before the next part; may be null
};

// Returns `data-00003.jsonl.gz` for part 3 of `data.jsonl.gz`: the number stands before the endings, which readers look
// at.
std::string PartPath(const std::string& path, uint64_t part);

// Returns whether `name`, without a directory, is that of some part of `path`.
bool IsPartOf(const std::string& path, std::string_view name);

// Only one thread may use it. Until Commit has succeeded, nothing stands under the output's name. The destructor
// removes the hidden files unless Keep was called. Errors: NO_SPACE, STORAGE_READ_ONLY, STORAGE_ERROR, INTERRUPTED.
class ShuffleOutput {
 public:
  // BAD_REQUEST: also a part's name is a link, a directory or no file at all.
  static absl::StatusOr<std::unique_ptr<ShuffleOutput>> Create(ShuffleOutputOptions options);
  // Goes on where Checkpoint stood. Also FILE_TRUNCATED, MANIFEST_CORRUPT: the hidden files are not what they were.
  static absl::StatusOr<std::unique_ptr<ShuffleOutput>> Resume(ShuffleOutputOptions options,
                                                               const nlohmann::json& checkpoint);
  // Returns whether the hidden files that a checkpoint names are there. Throws as nlohmann::json does.
  static bool CanResume(const ShuffleOutputOptions& options, const nlohmann::json& checkpoint);
  // Removes the hidden files of an older run with this prefix.
  static void RemovePartials(const ShuffleOutputOptions& options);
  ~ShuffleOutput();
  ShuffleOutput(const ShuffleOutput&) = delete;
  ShuffleOutput& operator=(const ShuffleOutput&) = delete;

  // Sets the number that split_files divides. Must be called before the first line.
  void SetTotalLines(uint64_t lines) { total_lines_ = lines; }

  absl::Status Line(std::string_view line);
  // Begins a line that comes in pieces, whose length is known.
  absl::Status BeginLongLine(uint64_t length);
  absl::Status LongLinePiece(std::string_view piece);
  absl::Status EndLongLine();

  // Makes durable what was written so far, and returns how to go on from here.
  absl::StatusOr<nlohmann::json> Checkpoint();
  // Completes and syncs all parts, which stay hidden.
  absl::Status Finish();
  // Gives all parts their names. Before the first one it removes the parts that stand there already, and those of a
  // longer output, with numbers behind the last. So what a kill leaves are the first parts of one output.
  absl::Status Commit();
  void Keep();

  const LineMultiset& lines() const { return lines_; }
  // May be called after Finish.
  uint64_t file_bytes() const { return file_bytes_; }
  std::vector<std::string> paths() const;
  bool direct() const { return direct_; }

 private:
  struct Part {
    std::string partial;
    std::string path;
    std::unique_ptr<OutputFile> object = nullptr;  // waits for its name; a file waits under its hidden name
  };

  explicit ShuffleOutput(ShuffleOutputOptions options);
  bool HasHiddenFiles() const { return !options_.stream && !options_.object && !options_.at.has_value(); }
  bool Splits() const { return options_.split_lines + options_.split_bytes + options_.split_files > 0; }
  OutputFile::Options FileOptions(uint64_t part) const;
  absl::Status HoldParts();
  absl::Status PlaceLine(uint64_t length);
  absl::Status OpenPart();
  absl::Status ClosePart();
  bool StandsAsPart(const std::string& path) const;
  absl::Status RemoveOlderParts(const std::vector<const Part*>& replaced) const;
  absl::Status Write(std::string_view bytes);
  absl::Status WriteFrames();

  const ShuffleOutputOptions options_;
  // Holds the hidden files (hidden_file.h) once they are closed. If there are parts, it is an empty file beside them,
  // whose name has the same token as theirs.
  UniqueFd held_;
  std::string token_;
  uint64_t total_lines_ = 0;
  LineMultiset lines_;
  uint64_t long_hash_ = 0;
  uint64_t long_length_ = 0;
  std::unique_ptr<OutputFile> file_;  // the part that is open
  uint64_t part_lines_ = 0;
  uint64_t part_bytes_ = 0;
  std::string frames_;       // text that is not compressed yet
  std::vector<Part> parts_;  // the parts that are closed
  uint64_t file_bytes_ = 0;
  bool direct_ = true;
  bool committed_ = false;
  bool keep_ = false;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_SHUFFLE_OUTPUT_H_

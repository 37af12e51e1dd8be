#include "corpus/shuffle/shuffle_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/file/atomic_write.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/frame_encoder.h"
#include "corpus/io/hidden_file.h"
#include "corpus/io/object_stores.h"
#include "corpus/io/open_source.h"

namespace cairn::corpus {

namespace {

// Returns where in `path` the number of a part stands.
size_t NumberPlace(const std::string& path) {
  const size_t slash = path.rfind('/');
  const size_t name = slash == std::string::npos ? 0 : slash + 1;
  size_t stem_end = path.size();
  if (CompressionOf(path) != Compression::kNone) stem_end = path.rfind('.');
  const size_t dot = path.substr(0, stem_end).rfind('.');
  if (dot != std::string::npos && dot > name) stem_end = dot;
  return stem_end == name ? path.size() : stem_end;
}

}  // namespace

std::string PartPath(const std::string& path, uint64_t part) {
  const size_t place = NumberPlace(path);
  return absl::StrCat(path.substr(0, place), absl::StrFormat("-%05d", part), path.substr(place));
}

bool IsPartOf(const std::string& path, std::string_view name) {
  const size_t place = NumberPlace(path), begin = path.rfind('/') + 1;  // npos + 1 is 0
  const std::string stem = path.substr(begin, place - begin) + "-", ending = path.substr(place);
  if (name.size() < stem.size() + 5 + ending.size() || !name.starts_with(stem) || !name.ends_with(ending)) return false;
  const std::string_view number = name.substr(stem.size(), name.size() - stem.size() - ending.size());
  return number.find_first_not_of("0123456789") == std::string_view::npos;
}

ShuffleOutput::ShuffleOutput(ShuffleOutputOptions options) : options_(std::move(options)) {}

OutputFile::Options ShuffleOutput::FileOptions(uint64_t part) const {
  OutputFile::Options file;
  file.direct = options_.direct;
  file.stream = options_.stream;
  file.stop = options_.stop;
  file.object_parts = options_.object_parts;
  file.at = options_.at;
  if (options_.object) return file;
  if (!options_.partial_prefix.empty()) {
    file.partial_path = absl::StrCat(options_.partial_prefix, ".", part);
  } else if (Splits()) {
    file.partial_path = HiddenName(PartPath(options_.path, part), token_);
  }
  return file;
}

// Removes the hidden parts that killed runs have left, and makes the file by which others see that this run is alive.
absl::Status ShuffleOutput::HoldParts() {
  if (!HasHiddenFiles()) return absl::OkStatus();
  RemoveLeftHidden(options_.path, [&](std::string_view name) { return IsPartOf(options_.path, name); });
  while (Splits()) {
    token_ = FreshHiddenToken();
    const std::string path = HiddenName(options_.path, token_);
    held_ = UniqueFd(open(path.c_str(), O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!held_.valid()) return OutputError("create", path, errno);
    if (LockHidden(held_.get())) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ShuffleOutput>> ShuffleOutput::Create(ShuffleOutputOptions options) {
  auto output = std::unique_ptr<ShuffleOutput>(new ShuffleOutput(std::move(options)));
  if (output->options_.partial_prefix.empty()) CAIRN_RETURN_IF_ERROR(output->HoldParts());
  // The part is opened now, so that a missing directory or missing permissions show before the work.
  CAIRN_RETURN_IF_ERROR(output->OpenPart());
  return output;
}

absl::StatusOr<std::unique_ptr<ShuffleOutput>> ShuffleOutput::Resume(ShuffleOutputOptions options,
                                                                     const nlohmann::json& checkpoint) {
  auto output = std::unique_ptr<ShuffleOutput>(new ShuffleOutput(std::move(options)));
  output->Keep();  // nothing may be removed until it is open
  try {
    for (uint64_t part = 0; part < checkpoint.at("closed").get<uint64_t>(); ++part) {
      output->parts_.push_back({output->FileOptions(part).partial_path, PartPath(output->options_.path, part)});
    }
    output->file_bytes_ = checkpoint.at("file_bytes").get<uint64_t>();
    output->part_lines_ = checkpoint.at("part_lines").get<uint64_t>();
    output->part_bytes_ = checkpoint.at("part_bytes").get<uint64_t>();
    absl::Base64Unescape(checkpoint.at("frames").get<std::string>(), &output->frames_);
    output->lines_ = {checkpoint.at("lines").get<uint64_t>(), checkpoint.at("bytes").get<uint64_t>(),
                      checkpoint.at("sum_a").get<uint64_t>(), checkpoint.at("sum_b").get<uint64_t>()};
    OutputFile::Position position;
    position.durable_bytes = checkpoint.at("durable_bytes").get<uint64_t>();
    absl::Base64Unescape(checkpoint.at("tail").get<std::string>(), &position.tail);
    const uint64_t part = output->parts_.size();
    const std::string& path = output->options_.path;
    CAIRN_ASSIGN_OR_RETURN(output->file_, OutputFile::Resume(output->Splits() ? PartPath(path, part) : path,
                                                             output->FileOptions(part), position));
  } catch (const nlohmann::json::exception& error) {
    return MakeError(Reason::kManifestCorrupt, absl::StrCat("the journal of the interrupted run: ", error.what()));
  }
  for (const Part& part : output->parts_) {
    if (access(part.partial.c_str(), F_OK) != 0) return OutputError("find", part.partial, errno);
  }
  output->keep_ = false;
  return output;
}

bool ShuffleOutput::CanResume(const ShuffleOutputOptions& options, const nlohmann::json& checkpoint) {
  const auto closed = checkpoint.at("closed").get<uint64_t>();
  struct stat found = {};
  for (uint64_t part = 0; part <= closed; ++part) {
    if (stat(absl::StrCat(options.partial_prefix, ".", part).c_str(), &found) != 0) return false;
  }
  return static_cast<uint64_t>(found.st_size) >= checkpoint.at("durable_bytes").get<uint64_t>();
}

void ShuffleOutput::RemovePartials(const ShuffleOutputOptions& options) {
  const std::filesystem::path prefix = absl::StrCat(options.partial_prefix, ".");
  const std::string name = prefix.filename().string();
  std::error_code error;
  std::vector<std::filesystem::path> found;
  for (std::filesystem::directory_iterator files(prefix.parent_path(), error), end; !error && files != end;
       files.increment(error)) {
    if (files->path().filename().string().starts_with(name)) found.push_back(files->path());
  }
  for (const std::filesystem::path& path : found) unlink(path.c_str());
}

ShuffleOutput::~ShuffleOutput() {
  if (keep_ && file_ != nullptr) file_->Keep();
  if (!committed_ && !keep_ && !options_.stream && !options_.at.has_value()) {
    file_.reset();
    for (const Part& part : parts_) {
      if (part.object == nullptr) unlink(part.partial.c_str());
    }
  }
  if (!token_.empty()) unlink(HiddenName(options_.path, token_).c_str());
}

void ShuffleOutput::Keep() {
  keep_ = true;
  if (file_ != nullptr) file_->Keep();
}

absl::Status ShuffleOutput::OpenPart() {
  // There may be a million parts, most of them without a line, and each costs a sync.
  if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed)) {
    return MakeError(Reason::kInterrupted, "interrupted");
  }
  const uint64_t part = parts_.size();
  const std::string path = Splits() ? PartPath(options_.path, part) : options_.path;
  CAIRN_ASSIGN_OR_RETURN(file_, OutputFile::Create(path, FileOptions(part)));
  // The hidden files of all parts stand in one directory, from which a rename may not reach where a link leads.
  if (Splits() && file_->path() != path) {
    return MakeError(Reason::kBadRequest, absl::StrCat("write ", path, ": it is a link, and parts do not follow links"),
                     {{"file", path}, {"next", "Remove the link, or give the parts another name."}});
  }
  part_lines_ = part_bytes_ = 0;
  return Write(options_.header);
}

absl::Status ShuffleOutput::ClosePart() {
  CAIRN_RETURN_IF_ERROR(WriteFrames());
  CAIRN_RETURN_IF_ERROR(file_->Finish());
  file_bytes_ += file_->bytes();
  direct_ = direct_ && file_->direct();
  if (file_->is_object()) {
    std::string path = file_->path();
    parts_.push_back({"", std::move(path), std::move(file_)});
    return absl::OkStatus();
  }
  parts_.push_back({file_->partial_path(), file_->path()});
  file_->Keep();  // parts_ removes it if necessary
  if (!Splits() && !options_.stream) held_ = file_->Hold();
  file_.reset();
  return absl::OkStatus();
}

absl::Status ShuffleOutput::PlaceLine(uint64_t length) {
  while (true) {
    bool full = false;
    if (options_.split_lines > 0) full = part_lines_ >= options_.split_lines;
    if (options_.split_bytes > 0) full = part_lines_ > 0 && part_bytes_ + length + 1 > options_.split_bytes;
    if (options_.split_files > 0) {
      // Part i ends before line (i + 1) * lines / files, so sizes differ by at most one line. (There are at most 2^20
      // files and less than 2^44 lines.)
      const uint64_t end = total_lines_ * (parts_.size() + 1) / options_.split_files;
      full = parts_.size() + 1 < options_.split_files && lines_.lines >= end;
    }
    if (!full) break;
    CAIRN_RETURN_IF_ERROR(ClosePart());
    CAIRN_RETURN_IF_ERROR(OpenPart());
  }
  ++part_lines_;
  return absl::OkStatus();
}

absl::Status ShuffleOutput::Write(std::string_view bytes) {
  part_bytes_ += bytes.size();
  if (options_.compression == Compression::kNone) return file_->Append(bytes);
  // Only whole frames are written, except at the end of a part. (A resumed run may have fewer threads than frames
  // wait.)
  const size_t waiting = (frames_.size() + kFrameBytes - 1) / kFrameBytes * kFrameBytes;
  const size_t batch = std::max(kFrameBytes * static_cast<size_t>(options_.threads), waiting);
  while (!bytes.empty()) {
    const size_t taken = std::min(bytes.size(), batch - frames_.size());
    frames_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (frames_.size() == batch) CAIRN_RETURN_IF_ERROR(WriteFrames());
  }
  return absl::OkStatus();
}

absl::Status ShuffleOutput::WriteFrames() {
  std::vector<std::string_view> texts;
  for (size_t begin = 0; begin < frames_.size(); begin += kFrameBytes) {
    texts.push_back(std::string_view(frames_).substr(begin, kFrameBytes));
  }
  // A part without a line must be a valid compressed file too.
  if (texts.empty() && part_bytes_ == 0 && options_.compression != Compression::kNone) texts.emplace_back();
  if (texts.empty()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const auto frames, EncodeFrames(options_.compression, texts, options_.threads));
  for (const std::string& frame : frames) CAIRN_RETURN_IF_ERROR(file_->Append(frame));
  frames_.clear();
  return absl::OkStatus();
}

absl::Status ShuffleOutput::Line(std::string_view line) {
  CAIRN_RETURN_IF_ERROR(PlaceLine(line.size()));
  lines_.Add(line);
  CAIRN_RETURN_IF_ERROR(Write(line));
  return Write({&options_.separator, 1});
}

absl::Status ShuffleOutput::BeginLongLine(uint64_t length) {
  long_hash_ = long_length_ = 0;
  return PlaceLine(length);
}

absl::Status ShuffleOutput::LongLinePiece(std::string_view piece) {
  long_hash_ = LineMultiset::Hash(long_hash_, piece);
  long_length_ += piece.size();
  return Write(piece);
}

absl::Status ShuffleOutput::EndLongLine() {
  lines_.AddHashed(long_hash_, long_length_);
  return Write({&options_.separator, 1});
}

absl::StatusOr<nlohmann::json> ShuffleOutput::Checkpoint() {
  CAIRN_ASSIGN_OR_RETURN(const OutputFile::Position position, file_->Checkpoint());
  nlohmann::json json;
  json["closed"] = parts_.size();
  json["file_bytes"] = file_bytes_;
  json["part_lines"] = part_lines_;
  json["part_bytes"] = part_bytes_;
  json["frames"] = absl::Base64Escape(frames_);
  json["lines"] = lines_.lines;
  json["bytes"] = lines_.bytes;
  json["sum_a"] = lines_.sum_a;
  json["sum_b"] = lines_.sum_b;
  json["durable_bytes"] = position.durable_bytes;
  json["tail"] = absl::Base64Escape(position.tail);
  return json;
}

absl::Status ShuffleOutput::Finish() {
  if (file_ != nullptr) CAIRN_RETURN_IF_ERROR(ClosePart());
  while (parts_.size() < options_.split_files) {
    CAIRN_RETURN_IF_ERROR(OpenPart());
    CAIRN_RETURN_IF_ERROR(ClosePart());
  }
  return absl::OkStatus();
}

bool ShuffleOutput::StandsAsPart(const std::string& path) const {
  if (ObjectStores* const stores = StoresOf(path)) return stores->Stands(path);
  struct stat found;
  return lstat(path.c_str(), &found) == 0 && !S_ISDIR(found.st_mode);
}

absl::Status ShuffleOutput::RemoveOlderParts(const std::vector<const Part*>& replaced) const {
  std::vector<std::string> older;
  for (const Part* const part : replaced) older.push_back(part->path);
  for (uint64_t part = parts_.size();; ++part) {
    std::string path = PartPath(options_.path, part);
    if (!StandsAsPart(path)) break;
    older.push_back(std::move(path));
  }
  // They are removed from the last one down, so that the parts of one set are always without a gap, which would hide
  // those behind it.
  std::reverse(older.begin(), older.end());
  return RemoveReplaced(older);
}

absl::Status ShuffleOutput::Commit() {
  CAIRN_RETURN_IF_ERROR(Finish());
  if (options_.stream || options_.at.has_value()) return absl::OkStatus();
  const bool resumed = !options_.partial_prefix.empty();
  std::vector<const Part*> unnamed;
  for (const Part& part : parts_) {
    if (part.object != nullptr) {
      unnamed.push_back(&part);
      continue;
    }
    // After an interruption between two renames, the first ones are done already.
    const bool done = resumed && access(part.partial.c_str(), F_OK) != 0 && access(part.path.c_str(), F_OK) == 0;
    if (!done) unnamed.push_back(&part);
  }
  if (Splits()) CAIRN_RETURN_IF_ERROR(RemoveOlderParts(unnamed));
  for (const Part* const part : unnamed) {
    if (part->object != nullptr) {
      CAIRN_RETURN_IF_ERROR(part->object->Publish());
      continue;
    }
    CAIRN_RETURN_IF_ERROR(PublishFile(part->partial, part->path, AtomicWriteOptions::Durable::kBytes));
  }
  committed_ = true;
  return options_.object ? absl::OkStatus() : SyncDirectoryOf(options_.path);
}

std::vector<std::string> ShuffleOutput::paths() const {
  std::vector<std::string> paths;
  for (const Part& part : parts_) paths.push_back(part.path);
  return paths;
}

}  // namespace cairn::corpus

#include "corpus/indexed/indexed_writer.h"

#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/output_place.h"

namespace cairn::corpus {
namespace {

template <typename T>
std::string_view BytesOf(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

template <typename T>
absl::Status Convert(std::span<const uint32_t> tokens, IndexedDtype dtype, std::string& bytes) {
  bytes.resize(tokens.size() * sizeof(T));
  char* out = bytes.data();
  uint64_t too_large = 0;
  for (const uint32_t token : tokens) {
    const T value = static_cast<T>(token);
    too_large |= token > static_cast<uint64_t>(std::numeric_limits<T>::max());
    std::memcpy(out, &value, sizeof(T));
    out += sizeof(T);
  }
  if (too_large == 0) return absl::OkStatus();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] <= static_cast<uint64_t>(std::numeric_limits<T>::max())) continue;
    return MakeError(Reason::kBadRequest, absl::StrCat("token ", tokens[i], " at position ", i,
                                                       " of a document does not fit the dataset's dtype ",
                                                       std::string(IndexedDtypeName(dtype))));
  }
  return absl::OkStatus();
}

}  // namespace

IndexedWriter::IndexedWriter(std::string prefix, Options options, MadeDirectory made, std::unique_ptr<OutputFile> bin,
                             Spool lengths, Spool documents, Spool modes)
    : prefix_(std::move(prefix)),
      options_(options),
      token_bytes_(IndexedDtypeBytes(options.dtype)),
      made_(std::move(made)),
      bin_(std::move(bin)),
      lengths_spool_(std::move(lengths)),
      documents_spool_(std::move(documents)),
      modes_spool_(std::move(modes)) {}

absl::StatusOr<std::unique_ptr<IndexedWriter>> IndexedWriter::Create(const std::string& prefix, Options options) {
  CAIRN_ASSIGN_OR_RETURN(auto made, MadeDirectory::Of(BinPath(prefix)));
  CAIRN_ASSIGN_OR_RETURN(auto bin, OutputFile::Create(BinPath(prefix), {}));
  const std::string directory = ScratchDirectoryFor(BinPath(prefix));
  auto writer = std::unique_ptr<IndexedWriter>(new IndexedWriter(prefix, options, std::move(made), std::move(bin),
                                                                 Spool(directory), Spool(directory), Spool(directory)));
  const int64_t first = 0;
  CAIRN_RETURN_IF_ERROR(writer->documents_spool_.Append(BytesOf(std::span(&first, 1))));
  return writer;
}

absl::Status IndexedWriter::AddLengths(uint64_t tokens, std::span<const int32_t> lengths,
                                       std::span<const int8_t> modes) {
  uint64_t sum = 0;
  for (const int32_t length : lengths) {
    if (length < 0) return MakeError(Reason::kBadRequest, absl::StrCat("a sequence has ", length, " tokens"));
    sum += static_cast<uint64_t>(length);
  }
  if (sum != tokens) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("a document has ", tokens, " tokens, but its sequences sum to ", sum));
  }
  if (modes.size() != (options_.multimodal ? lengths.size() : 0)) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("a document has ", lengths.size(), " sequences and ", modes.size(),
                                  " modes in a dataset that is ", options_.multimodal ? "" : "not ", "multimodal"));
  }
  CAIRN_RETURN_IF_ERROR(lengths_spool_.Append(BytesOf(lengths)));
  CAIRN_RETURN_IF_ERROR(modes_spool_.Append(BytesOf(modes)));
  sequences_ += lengths.size();
  ++documents_;
  const int64_t end = static_cast<int64_t>(sequences_);
  return documents_spool_.Append(BytesOf(std::span(&end, 1)));
}

absl::Status IndexedWriter::AddDocument(std::span<const uint32_t> tokens, std::span<const int32_t> lengths,
                                        std::span<const int8_t> modes) {
  switch (options_.dtype) {
    case IndexedDtype::kUint8:
      CAIRN_RETURN_IF_ERROR(Convert<uint8_t>(tokens, options_.dtype, converted_));
      break;
    case IndexedDtype::kInt8:
      CAIRN_RETURN_IF_ERROR(Convert<int8_t>(tokens, options_.dtype, converted_));
      break;
    case IndexedDtype::kInt16:
      CAIRN_RETURN_IF_ERROR(Convert<int16_t>(tokens, options_.dtype, converted_));
      break;
    case IndexedDtype::kUint16:
      CAIRN_RETURN_IF_ERROR(Convert<uint16_t>(tokens, options_.dtype, converted_));
      break;
    case IndexedDtype::kInt32:
      CAIRN_RETURN_IF_ERROR(Convert<int32_t>(tokens, options_.dtype, converted_));
      break;
    case IndexedDtype::kInt64:
      CAIRN_RETURN_IF_ERROR(Convert<int64_t>(tokens, options_.dtype, converted_));
      break;
    case IndexedDtype::kFloat32:
    case IndexedDtype::kFloat64:
      return MakeError(Reason::kBadRequest, "token ids cannot be added to a dataset of floating-point numbers");
  }
  return AddRawDocument(converted_, lengths, modes);
}

absl::Status IndexedWriter::AddRawDocument(std::string_view tokens, std::span<const int32_t> lengths,
                                           std::span<const int8_t> modes) {
  if (tokens.size() % token_bytes_ != 0) {
    return MakeError(Reason::kBadRequest, absl::StrCat("a document of ", tokens.size(), " bytes is no whole number of ",
                                                       token_bytes_, "-byte tokens"));
  }
  CAIRN_RETURN_IF_ERROR(AddLengths(tokens.size() / token_bytes_, lengths, modes));
  bytes_ += tokens.size();
  return bin_->Append(tokens);
}

absl::StatusOr<std::unique_ptr<OutputFile>> IndexedWriter::WriteIndex() {
  CAIRN_ASSIGN_OR_RETURN(auto idx, OutputFile::Create(IdxPath(prefix_), {}));
  CAIRN_RETURN_IF_ERROR(idx->Append(EncodeIndexHeader({options_.dtype, sequences_, documents_ + 1})));
  const auto append = [&idx](std::string_view bytes) { return idx->Append(bytes); };
  CAIRN_RETURN_IF_ERROR(lengths_spool_.Read(append));
  uint64_t pointer = 0;
  std::string pointers;
  CAIRN_RETURN_IF_ERROR(lengths_spool_.Read([&](std::string_view lengths) {
    pointers.resize(lengths.size() * 2);
    for (size_t i = 0; i < lengths.size() / 4; ++i) {
      int32_t length;
      std::memcpy(&length, lengths.data() + 4 * i, 4);
      std::memcpy(pointers.data() + 8 * i, &pointer, 8);
      pointer += static_cast<uint64_t>(length) * token_bytes_;
    }
    return idx->Append(pointers);
  }));
  CAIRN_RETURN_IF_ERROR(documents_spool_.Read(append));
  CAIRN_RETURN_IF_ERROR(modes_spool_.Read(append));
  return idx;
}

absl::Status IndexedWriter::Finish() {
  CAIRN_ASSIGN_OR_RETURN(auto idx, WriteIndex());
  CAIRN_RETURN_IF_ERROR(idx->Finish());
  CAIRN_RETURN_IF_ERROR(bin_->Finish());
  // An old .idx may fit the new .bin by its size, so it must not stand beside it.
  CAIRN_RETURN_IF_ERROR(RemoveReplaced({{idx->path()}}));
  CAIRN_RETURN_IF_ERROR(bin_->Commit());
  return idx->Commit();
}

}  // namespace cairn::corpus

#include "store/s3/s3_client.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/random_id.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/s3/http_status.h"
#include "store/s3/s3_standing.h"

namespace cairn {
namespace {

constexpr size_t kKeysInDeletion = 1000;
// Stores delete the keys of one request one after the other. So fewer go into each, where several can be under way.
constexpr size_t kFewKeys = 16;

}  // namespace

absl::StatusOr<std::unique_ptr<S3Client>> S3Client::Open(const S3Address& address, const Clock& clock,
                                                         const Options& options) {
  CAIRN_ASSIGN_OR_RETURN(auto wire, S3Wire::Open(address, options.wire));
  return std::unique_ptr<S3Client>(new S3Client(address, clock, options, std::move(wire)));
}

PutResult S3Client::PutObject(const std::string& key, std::string_view bytes, bool if_absent) {
  const std::string writer = RandomToken(16);
  const S3Dialect& dialect = *address().dialect;
  S3Request request = {"PUT", key, "", {dialect.ChecksumOf(bytes), {dialect.writer_header, writer}}, bytes};
  if (if_absent) request.headers.insert(request.headers.end(), dialect.if_absent.begin(), dialect.if_absent.end());
  const S3Reply reply = requester_.Ask(request);
  if (reply.done()) return {Put::kCreated};
  if (!reply.in_doubt) {
    if (reply.answer.status == kHttpPreconditionFailed) return {Put::kExists};
    return {ErrorOf(address(), request, reply)};
  }
  // An earlier try may have put it. The word tells the own object from another one with equal bytes.
  const auto standing = WhoseStands(requester_, key, writer);
  if (!standing.ok()) return {standing.status(), /*in_doubt=*/true};
  if (*standing == Put::kCreated || (standing->has_value() && if_absent)) return {**standing};
  return {ErrorOf(address(), request, reply), /*in_doubt=*/true};
}

absl::StatusOr<S3Object> S3Client::Head(const std::string& key) { return HeadObject(requester_, key); }

absl::StatusOr<S3Content> S3Client::Fetch(const std::string& key, uint64_t max_bytes) {
  S3Request request = {"GET", key, "", address().dialect->fetch};
  request.content = true;
  request.max_bytes = max_bytes;
  S3Reply reply = requester_.Ask(request);
  CAIRN_ASSIGN_OR_RETURN(S3Object object, ObjectIn(address(), request, reply));
  return S3Content{std::move(object), std::move(reply.answer.body)};
}

absl::StatusOr<S3Content> S3Client::FetchBegin(const std::string& key, uint64_t most) {
  S3Request request = {"GET", key, "", {{"Range", absl::StrCat("bytes=0-", most - 1)}}};
  request.content = true;
  request.max_bytes = most;
  S3Reply reply = requester_.Ask(request);
  // An empty object has no first byte.
  if (reply.final && reply.answer.status == kHttpRangeNotSatisfiable) {
    CAIRN_ASSIGN_OR_RETURN(S3Object object, Head(key));
    return S3Content{std::move(object), ""};
  }
  CAIRN_ASSIGN_OR_RETURN(S3Object object, ObjectIn(address(), request, reply));
  if (reply.answer.status == kHttpPartialContent) {
    // "bytes 0-4095/1000000"
    const std::string range = reply.answer.Header("content-range");
    const size_t slash = range.find('/');
    if (slash == range.npos || !absl::SimpleAtoi(range.substr(slash + 1), &object.bytes)) {
      return Lacks(address(), request, "Content-Range");
    }
  }
  if (reply.answer.body.size() != std::min(most, object.bytes)) return Lacks(address(), request, "all of the range");
  return S3Content{std::move(object), std::move(reply.answer.body)};
}

absl::Status S3Client::Get(const std::string& key, const std::string& etag, uint64_t offset, uint64_t size, char* to,
                           const std::atomic<bool>* stop) {
  if (size == 0) return absl::OkStatus();
  S3Request request = {"GET", key, "", {{"Range", absl::StrCat("bytes=", offset, "-", offset + size - 1)}}};
  if (!etag.empty()) request.headers.emplace_back("If-Match", etag);
  request.content = true;
  request.to = to;
  request.max_bytes = size;
  request.stop = stop;
  const S3Reply reply = requester_.Ask(request);
  const S3Answer& answer = reply.answer;
  const std::string file = address().NameOf(key);
  if (reply.final && answer.status == kHttpPreconditionFailed) {
    return MakeError(Reason::kBadForeignFile, absl::StrCat(file, " was written anew while it was read"),
                     {{"file", file}});
  }
  const bool ends_before = answer.status == kHttpRangeNotSatisfiable || (reply.done() && answer.received < size);
  if (reply.final && ends_before) {
    return MakeError(Reason::kFileTruncated, absl::StrCat(file, " ends before byte ", offset + size), {{"file", file}});
  }
  return reply.done() ? absl::OkStatus() : ErrorOf(address(), request, reply);
}

absl::StatusOr<std::vector<S3Listed>> S3Client::List(const std::string& prefix, bool by_directory,
                                                     const std::string& after, size_t most) {
  S3Listing listing(prefix, by_directory, after, most);
  while (!listing.complete()) {
    const S3Request request = {"GET", "", listing.Query()};
    CAIRN_ASSIGN_OR_RETURN(const S3Xml page, requester_.AskForXml(request, "ListBucketResult"));
    if (const std::string lacking = listing.Add(page); !lacking.empty()) return Lacks(address(), request, lacking);
  }
  return listing.Take();
}

absl::Status S3Client::DeleteSome(const std::vector<std::string>& keys, int threads, std::vector<std::string>& refused,
                                  absl::Status& error) {
  const S3Dialect& dialect = *address().dialect;
  const std::string body = DeletionXml(keys, dialect.deletion_is_quiet);
  S3Request request = {"POST", "", "delete", {{"Content-Type", "application/xml"}}, body};
  if (dialect.deletion_has_checksum) request.headers.push_back(dialect.ChecksumOf(body));
  const S3Reply reply = requester_.Ask(request);
  // Some stores do not know this request, and Ceph 16 allows it only to those who may delete everything.
  if (reply.final && (IsDenied(reply.answer.status) || reply.code == "NotImplemented")) {
    return ForEachOnThreads("to delete", keys.size(), threads, [&](size_t number, int) -> absl::Status {
      const S3Request single = {"DELETE", keys[number]};
      const S3Reply deleted = requester_.Ask(single);
      const bool gone = deleted.done() || (deleted.final && deleted.answer.status == kHttpNotFound);
      return gone ? absl::OkStatus() : ErrorOf(address(), single, deleted);
    });
  }
  if (!reply.done()) return ErrorOf(address(), request, reply);
  if (!reply.xml.has_value() || reply.xml->name != "DeleteResult") return Lacks(address(), request, "DeleteResult");
  for (const auto& [name, texts] : reply.xml->elements) {
    const std::string code = S3Xml::TextOf(texts, "Code");
    if (name != "Error" || code == "NoSuchKey") continue;
    const std::string key = S3Xml::TextOf(texts, "Key");
    const std::string file = address().NameOf(key);
    error =
        MakeError(ReasonFor(200, code), absl::StrCat("delete ", file, ": ", code, " ", S3Xml::TextOf(texts, "Message")),
                  {{"file", file}});
    if (JudgeS3Answer(200, code) == S3Verdict::kFinal) return error;
    refused.push_back(key);
  }
  return absl::OkStatus();
}

absl::Status S3Client::Delete(const std::vector<std::string>& keys) {
  const absl::Time begun = requester_.Now();
  std::vector<std::string> left = keys;
  for (int attempt = 1; !left.empty(); ++attempt) {
    const size_t share = (left.size() + static_cast<size_t>(connections()) - 1) / static_cast<size_t>(connections());
    const size_t in_each = std::clamp(share, kFewKeys, kKeysInDeletion);
    std::vector<std::string> refused;
    absl::Status error;
    Mutex mutex;  // of these two
    const size_t requests = (left.size() + in_each - 1) / in_each;
    const int threads_each = std::max(1, connections() / static_cast<int>(requests));
    const absl::Status asked = ForEachOnThreads("to delete", requests, connections(), [&](size_t number, int) {
      const auto first = left.begin() + static_cast<ptrdiff_t>(number * in_each);
      const auto end = left.begin() + static_cast<ptrdiff_t>(std::min(left.size(), (number + 1) * in_each));
      std::vector<std::string> refused_here;
      absl::Status error_here;
      CAIRN_RETURN_IF_ERROR(DeleteSome({first, end}, threads_each, refused_here, error_here));
      MutexLock lock(mutex);
      refused.insert(refused.end(), refused_here.begin(), refused_here.end());
      error.Update(error_here);
      return absl::OkStatus();
    });
    CAIRN_RETURN_IF_ERROR(asked);
    if (!refused.empty() && requester_.Now() - begun > requester_.options().patience) return error;
    if (!refused.empty()) requester_.BackOff(attempt);
    left = std::move(refused);
  }
  return absl::OkStatus();
}

}  // namespace cairn

// The files of credentials that Google's tools write, and what becomes of them. Functions of texts.
#ifndef CAIRN_STORE_S3_GOOGLE_KEY_FILE_H_
#define CAIRN_STORE_S3_GOOGLE_KEY_FILE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cairn {

// A word by which Google's servers know who asks. Whoever has it may act for that person until it expires.
struct GoogleToken {
  std::string text;
  absl::Time expires = absl::InfiniteFuture();
};

struct GoogleKeyFile {
  enum class Kind { kServiceAccount, kPerson };

  Kind kind = Kind::kServiceAccount;
  // A service account has a name, and a private key in PEM with the key's name.
  std::string email, private_key, key_id;
  // A person asks for a token with these, there.
  std::string client_id, client_secret, refresh_token, token_uri;
};

// Reads "service_account" and "authorized_user". `file` is for messages. INVALID_ARGUMENT (BAD_REQUEST): it is no such
// file; UNIMPLEMENTED (UNSUPPORTED): it is of another kind.
absl::StatusOr<GoogleKeyFile> ParseGoogleKeyFile(std::string_view text, const std::string& file);

// Makes a token that the service account signs itself, for an hour. INVALID_ARGUMENT (BAD_REQUEST): its key is none.
absl::StatusOr<GoogleToken> TokenOfServiceAccount(const GoogleKeyFile& key, const std::string& file, absl::Time now);

// Returns the body that asks for a token of a person.
std::string TokenQuestion(const GoogleKeyFile& key);
// Reads the answer of a server of tokens. UNAVAILABLE (STORAGE_ERROR): it is none.
absl::StatusOr<GoogleToken> ParseTokenAnswer(std::string_view text, absl::Time now);
// Says what a server of tokens said why it gives none: "invalid_grant: Bad Request"; empty if it said nothing.
std::string ReasonOfRefusal(std::string_view text);

// Reads a token that stands alone. INVALID_ARGUMENT (BAD_REQUEST): it is none. `from` is for the message.
absl::StatusOr<GoogleToken> ParseBareToken(std::string_view text, const std::string& from);

}  // namespace cairn

#endif  // CAIRN_STORE_S3_GOOGLE_KEY_FILE_H_

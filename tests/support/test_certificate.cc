#include "tests/support/test_certificate.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace shardline::testing {
namespace {

template <typename Write>
void WriteFile(const std::string& path, Write write) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  SL_CHECK(file != nullptr, path);
  SL_CHECK(write(file) == 1, path);
  std::fclose(file);
}

}  // namespace

TestCertificate MakeTestCertificate(const std::string& directory) {
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, void (*)(X509*)> certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_NAME* const name = X509_get_subject_name(certificate.get());
  const auto* const host = reinterpret_cast<const unsigned char*>("127.0.0.1");
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, host, -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  X509_set_pubkey(certificate.get(), key.get());
  SL_CHECK(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0);

  const TestCertificate files = {.certificate = absl::StrCat(directory, "/certificate.pem"),
                                 .key = absl::StrCat(directory, "/key.pem")};
  WriteFile(files.certificate,
            [&](std::FILE* file) { return PEM_write_X509(file, certificate.get()); });
  WriteFile(files.key, [&](std::FILE* file) {
    return PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  return files;
}

}  // namespace shardline::testing

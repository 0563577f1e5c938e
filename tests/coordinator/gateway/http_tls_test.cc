// The same server behind TLS.

#include <filesystem>
#include <memory>
#include <string>

#include "coordinator/gateway/http_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/gateway/http_fixture.h"
#include "tests/support/raw_http.h"
#include "tests/support/test_certificate.h"

namespace shardline {
namespace {

using ::testing::HasSubstr;
using testing::RawAnswer;
using testing::RawHttp;

class HttpTlsTest : public HttpServerTest {
 protected:
  void StartTls(HttpServerOptions options = {}) {
    options.tls_certificate = files_.certificate;
    options.tls_key = files_.key;
    Start(options);
  }
  RawHttp ConnectTls(RawHttp::Options options = {}) const {
    options.tls = true;
    return RawHttp::Connect(server_->port(), options);
  }

  static testing::TestCertificate MakeFiles(const std::string& name) {
    const std::string directory = ::testing::TempDir() + "http_tls_test_" + name;
    std::filesystem::create_directories(directory);
    return testing::MakeTestCertificate(directory);
  }

  const testing::TestCertificate files_ = MakeFiles("own");
};

TEST_F(HttpTlsTest, RequestsAndStreamsGoThrough) {
  StartTls();
  RawHttp client = ConnectTls({.tls_offer = "\x02h2\x08http/1.1"});
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(client.protocol(), "http/1.1");
  ASSERT_TRUE(client.Send(Post("/echo", std::string(1 << 20, 'x'))));
  EXPECT_EQ(client.ReadAnswer().body.size(), (1 << 20) + 12U);
  ASSERT_TRUE(client.Send(Get("/hold")));
  const std::shared_ptr<HttpExchange> exchange = handler_.AwaitHeld();
  EXPECT_TRUE(exchange->request().is_tls);
  EXPECT_EQ(exchange->request().peer, "127.0.0.1");
  exchange->Begin({});
  EXPECT_EQ(client.ReadHead().status, 200);
  EXPECT_TRUE(exchange->Write("one"));
  EXPECT_EQ(client.ReadChunk(), "one");
  exchange->Finish();
  EXPECT_EQ(client.ReadChunk(), "");
}

TEST_F(HttpTlsTest, TheEndOfAWholeAnswerIsMeant) {
  StartTls();
  RawHttp client = ConnectTls();
  ASSERT_TRUE(client.Send(Get("/echo", "Connection: close\r\n")));
  EXPECT_EQ(client.ReadAnswer().status, 200);
  EXPECT_TRUE(client.AwaitEnd()) << "without close_notify an attacker could have cut it";
}

TEST_F(HttpTlsTest, ACutStreamIsSeenAsCut) {
  StartTls();
  RawHttp client = ConnectTls();
  ASSERT_TRUE(client.Send(Get("/hold")));
  const std::shared_ptr<HttpExchange> exchange = handler_.AwaitHeld();
  exchange->Begin({.body = "one"});
  exchange->Abort();
  const RawAnswer answer = client.ReadAnswer();
  EXPECT_EQ(answer.body, "one");
  EXPECT_FALSE(answer.is_whole);
}

TEST_F(HttpTlsTest, ARefusalIsHeardByAClientThatGoesOnSending) {
  StartTls({.body_bytes_max = 1000});
  RawHttp client = ConnectTls();
  ASSERT_TRUE(client.Send(Post("/echo", std::string(20'000, 'x'))));
  EXPECT_EQ(client.ReadAnswer().status, 413);
}

TEST_F(HttpTlsTest, AClientThatHangsUpIsNoticed) {
  StartTls();
  RawHttp client = ConnectTls();
  ASSERT_TRUE(client.Send(Get("/hold")));
  const std::shared_ptr<HttpExchange> exchange = handler_.AwaitHeld();
  const GoneWatch gone(*exchange);
  client.Close();
  EXPECT_TRUE(gone.Await());
}

TEST_F(HttpTlsTest, OldTlsAndPlainTextAreTurnedAway) {
  StartTls();
  EXPECT_FALSE(ConnectTls({.tls_version_max = 11}).ok());
  EXPECT_TRUE(ConnectTls({.tls_version_max = 12}).ok());
  RawHttp plain = Connect();
  ASSERT_TRUE(plain.Send(Get("/echo")));
  EXPECT_EQ(plain.ReadAnswer().status, 0);
  EXPECT_EQ(server_->figures().requests, 0U);
}

TEST_F(HttpTlsTest, AHandshakeThatStallsIsTimed) {
  StartTls({.header_time = absl::Milliseconds(50)});
  RawHttp silent = Connect();
  EXPECT_TRUE(silent.AwaitEnd());
}

TEST_F(HttpTlsTest, AnErrorNamesTheFile) {
  const auto message = [&](const std::string& certificate, const std::string& key) {
    const auto server =
        HttpServer::Start({.tls_certificate = certificate, .tls_key = key}, &handler_);
    return std::string(server.status().message());
  };
  EXPECT_THAT(message("/nowhere.pem", files_.key), HasSubstr("/nowhere.pem: No such file"));
  EXPECT_THAT(message(files_.certificate, "/nowhere.pem"), HasSubstr("/nowhere.pem"));
  EXPECT_THAT(message(files_.key, files_.key), HasSubstr(files_.key));
  EXPECT_THAT(message(files_.certificate, ""), HasSubstr("or neither"));
  const testing::TestCertificate other = MakeFiles("other");
  EXPECT_THAT(message(files_.certificate, other.key), HasSubstr(other.key));
}

}  // namespace
}  // namespace shardline

// Authenticates clients of a cluster by a challenge: HMAC-SHA256 of random bytes under a shared secret.
package container.tests;

import io.aeron.security.Authenticator;
import io.aeron.security.AuthenticatorSupplier;
import io.aeron.security.SessionProxy;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.HashMap;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * Rejects users who are not called {@code alice}, {@code twice} or {@code slow}, and answers that do not fit. It asks
 * {@code twice} two times, and never answers {@code slow}. The secret is the system property
 * {@code container.tests.secret}.
 */
public final class HmacAuthenticator implements Authenticator, AuthenticatorSupplier
{
    private static final int CHALLENGE_LENGTH = 16;

    private final byte[] secret = System.getProperty("container.tests.secret", "").getBytes(StandardCharsets.UTF_8);
    private final SecureRandom random = new SecureRandom();
    private final Map<Long, Attempt> attempts = new HashMap<>();

    private static final class Attempt
    {
        private final String user;
        private byte[] challenge;
        private boolean isAsked;
        private boolean isAnswered;
        private int rounds;

        private Attempt(final String user)
        {
            this.user = user;
            rounds = "twice".equals(user) ? 2 : 1;
        }
    }

    @Override
    public Authenticator get()
    {
        return this;
    }

    @Override
    public void onConnectRequest(final long sessionId, final byte[] encodedCredentials, final long nowMs)
    {
        attempts.put(sessionId, new Attempt(new String(encodedCredentials, StandardCharsets.UTF_8)));
    }

    @Override
    public void onChallengeResponse(final long sessionId, final byte[] encodedCredentials, final long nowMs)
    {
        final Attempt attempt = attempts.get(sessionId);
        if (null == attempt || null == attempt.challenge)
        {
            return;
        }

        attempt.isAnswered = MessageDigest.isEqual(hmac(attempt.challenge), encodedCredentials);
        attempt.isAsked = false;
        attempt.rounds = attempt.isAnswered ? attempt.rounds - 1 : 0;
    }

    @Override
    public void onConnectedSession(final SessionProxy sessionProxy, final long nowMs)
    {
        final Attempt attempt = attempts.get(sessionProxy.sessionId());
        if (null == attempt)
        {
            return;
        }

        if (!"alice".equals(attempt.user) && !"twice".equals(attempt.user) && !"slow".equals(attempt.user))
        {
            sessionProxy.reject();
        }
        else if (!"slow".equals(attempt.user))
        {
            challenge(sessionProxy, attempt);
        }
    }

    @Override
    public void onChallengedSession(final SessionProxy sessionProxy, final long nowMs)
    {
        final Attempt attempt = attempts.get(sessionProxy.sessionId());
        if (null == attempt || attempt.isAsked)
        {
            return;
        }

        if (attempt.rounds > 0)
        {
            challenge(sessionProxy, attempt);
        }
        else if (attempt.isAnswered)
        {
            if (sessionProxy.authenticate(attempt.user.getBytes(StandardCharsets.UTF_8)))
            {
                attempts.remove(sessionProxy.sessionId());
            }
        }
        else
        {
            sessionProxy.reject();
        }
    }

    private void challenge(final SessionProxy sessionProxy, final Attempt attempt)
    {
        final byte[] challenge = new byte[CHALLENGE_LENGTH];
        random.nextBytes(challenge);
        if (sessionProxy.challenge(challenge))
        {
            attempt.challenge = challenge;
            attempt.isAsked = true;
        }
    }

    private byte[] hmac(final byte[] message)
    {
        try
        {
            final Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(secret, "HmacSHA256"));
            return mac.doFinal(message);
        }
        catch (final GeneralSecurityException ex)
        {
            throw new IllegalStateException(ex);
        }
    }
}

"""Files of users in and out: COPY INTO, EXPORT."""
